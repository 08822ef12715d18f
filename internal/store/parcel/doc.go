// Package parcel is a stream of files with their metadata: names of any bytes,
// modes, owners, times to the nanosecond, symbolic and hard links, user
// attributes, POSIX ACLs, and holes. Import and export of workspaces use it.
//
// [Pack] reads a directory of this host into a parcel, [Unpack] writes a parcel
// into a directory of this host; package workspace does both for its own tree. It
// is not an archive format for storage (it has no index and no compression), and
// it does not know workspaces.
//
// # Format
//
// All numbers are little-endian.
//
//	magic "holt parcel 1\n"
//	frames: u8 kind | u32 length of the payload, at most 2 MiB | payload
//
//	1 totals   u64 entries, u64 bytes: about how much will come; first, for progress only
//	2 entry    u8 kind | u32 mode uid gid rdev | i64 mtime atime (ns since 1970) | i64 size | u64 id
//	           | u16 length, name | u16 length, target | u32 number of attributes, each u16 length, name, u32 length, value
//	3 data     i64 offset | bytes: of the file whose entry came last; offsets only grow. What none covers is a hole
//	4 up       the directory that is open is complete
//	5 end      u64 entries, u64 bytes that came. Without it the stream was cut off
//
// The first entry is the top directory and has no name. A directory's entry opens
// it; the entries that follow are in it until its up, and its times apply then.
// A file with several names has an id other than 0; a link entry has the id of
// an earlier file.
//
// # Trust
//
// Either side may be hostile. The decoder checks every length before it allocates
// memory, and refuses invalid names. Unpack creates everything relative to
// directories that it holds open and never follows a symbolic link, so that no
// stream can write outside the given directory.
package parcel

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

const (
	magic      = "holt parcel 1\n"
	mostFrame  = 2 << 20 // bytes of a payload
	mostName   = 255
	mostTarget = 4095
	mostXattrs = 1 << 20 // bytes of names and values of one entry
	mostDepth  = 4096    // nesting of directories
	mostLinked = 1 << 24 // files with several names
	// MostData is the maximum number of bytes in one data frame.
	MostData = 1 << 20
)

const (
	frameTotals = 1
	frameEntry  = 2
	frameData   = 3
	frameUp     = 4
	frameEnd    = 5
)

// Kind is the type of an entry.
type Kind uint8

// The kinds of entries. The numbers are the format.
const (
	Dir     Kind = 1
	File    Kind = 2
	Symlink Kind = 3
	Fifo    Kind = 4
	Socket  Kind = 5
	Char    Kind = 6
	Block   Kind = 7
	Link    Kind = 8 // another name of an earlier file
)

var kinds = map[Kind]uint32{Dir: syscall.S_IFDIR, File: syscall.S_IFREG, Symlink: syscall.S_IFLNK, Fifo: syscall.S_IFIFO,
	Socket: syscall.S_IFSOCK, Char: syscall.S_IFCHR, Block: syscall.S_IFBLK}

// KindOf returns the kind for the type bits of a mode, 0 if there is none.
func KindOf(mode uint32) Kind {
	for k, bits := range kinds {
		if mode&syscall.S_IFMT == bits {
			return k
		}
	}
	return 0
}

// KindOfFile is KindOf for a mode of package fs.
func KindOfFile(mode fs.FileMode) Kind {
	switch mode.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Symlink
	case fs.ModeNamedPipe:
		return Fifo
	case fs.ModeSocket:
		return Socket
	case fs.ModeDevice | fs.ModeCharDevice:
		return Char
	}
	return Block
}

// TypeBits returns the type bits of a mode for a kind.
func (k Kind) TypeBits() uint32 { return kinds[k] }

// Device reports whether it is a device node.
func (k Kind) Device() bool { return k == Char || k == Block }

// Entry is one name and its file.
type Entry struct {
	Kind         Kind
	Name         string // any bytes but / and NUL; empty for the top only
	Mode         uint32 // permission bits with set-id and sticky
	UID, GID     uint32
	Rdev         uint32 // of device nodes
	Mtime, Atime int64  // ns since 1970
	Size         int64  // of files, bytes
	ID           uint64 // of files with several names, and of links to them
	Target       string // of symbolic links
	Xattrs       []Xattr
}

// Xattr is a user attribute or a POSIX ACL (see Carries). The user and group
// numbers of an ACL are not translated.
type Xattr struct {
	Name  string
	Value []byte
}

// Totals are how much a stream holds.
type Totals struct {
	Entries int64 // names, links included
	Bytes   int64 // of file content that is not a hole
}

// ErrFormat is returned if a stream is not a parcel, is damaged, or was cut off.
var ErrFormat = errors.New("the stream of files is damaged or was cut off")

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Carries reports whether an extended attribute of this name is sent: a user
// attribute or POSIX ACL.
func Carries(name string) bool {
	return len(name) > len(xattrPrefix) && strings.HasPrefix(name, xattrPrefix) ||
		name == aclAccess || name == aclDefault
}

// The attributes that are POSIX ACLs.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default" // of directories
)

// WithoutACL returns the names of ACLs that an entry of this kind could have but does not.
func (e Entry) WithoutACL() (names []string) {
	for _, name := range []string{aclAccess, aclDefault} {
		possible := e.Kind != Symlink && (name == aclAccess || e.Kind == Dir)
		if possible && !slices.ContainsFunc(e.Xattrs, func(x Xattr) bool { return x.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// xattrPrefix begins the names of user attributes.
const xattrPrefix = "user."
