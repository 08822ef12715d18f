package workspace

import "syscall"

// Ino is an inode number: the FUSE node id too. It is never reused.
type Ino uint64

// Root is the top directory.
const Root Ino = 1

// Epoch numbers one mount of the workspace, from BeginEpoch to EndEpoch. It is
// never reused. Zero is no mount: the API.
type Epoch uint64

// MountKind says who mounts.
type MountKind string

// The kinds of mounts. A host mount ends with its daemon, so its epochs end
// when the workspace is opened; a guest's outlive it.
const (
	HostMount  MountKind = "host"
	GuestMount MountKind = "guest"
)

// Caller says who asks for an operation.
type Caller struct {
	Epoch  Epoch  // the mount it came through; 0: the API. Lookups are counted only for a mount.
	Unique uint64 // the request's number within the epoch; 0: no identity, a repeat is executed again
	UID    uint32
	GID    uint32
	PID    uint32
	Time   int64  // ns since 1970 on the caller's clock when it asked: the file time of what it changes; 0: see Tree.when
	Umask  uint32 // bits that what is made does not get, unless its directory has a default ACL
	Writer Writer // zero: unknown; the inode keeps its last writer
}

// Writer says what a change is attributed to. It must be comparable by value.
type Writer struct {
	Kind     string // run, terminal, service, schedule, token, person or system
	Name     string // "agent" for runs and terminals, else the service's, schedule's, token's or person's
	Run      string // what is undone as one: run id, for runs; stretch id, for terminals
	Terminal string // terminal id, for terminals
	Token    string // token id, for tokens
}

// Attr is what stat shows. Times are nanoseconds since 1970 UTC.
type Attr struct {
	Ino    Ino
	Mode   uint32 // type bits (S_IFMT) and permission bits
	UID    uint32
	GID    uint32
	Nlink  uint32
	Rdev   uint32
	Size   int64 // bytes
	Blocks int64 // 512-byte units
	Atime  int64
	Mtime  int64
	Ctime  int64
	Btime  int64
}

// IsDir tells whether the inode is a directory.
func (a Attr) IsDir() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// IsRegular tells whether the inode is a regular file.
func (a Attr) IsRegular() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFREG }

// DirEntry is one name in a directory, as ReadDir shows it.
type DirEntry struct {
	Name   string
	Ino    Ino
	Mode   uint32 // type bits only, unless Attr is filled
	Cookie uint64 // position after this entry: pass it to ReadDir to continue
	Attr   Attr   // filled only when ReadDir was asked for attributes
}

// SetMask says which fields of a SetAttrs count.
type SetMask uint32

// The fields of SetAttrs.
const (
	SetMode SetMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	SetCtime    // with Ctime; without it ctime becomes now
	SetKillPriv // clear set-id bits as a write by this caller would
)

// SetAttrs is a change of attributes. UTIME_OMIT is a field left out of Mask.
type SetAttrs struct {
	Mask  SetMask
	Mode  uint32 // permission bits; type bits are ignored
	UID   uint32
	GID   uint32
	Size  int64
	Atime int64
	Mtime int64
	Ctime int64
}

// Flags of Rename (renameat2(2)).
const (
	RenameNoReplace uint32 = 1
	RenameExchange  uint32 = 2
)

// Modes of Fallocate (fallocate(2)).
const (
	FallocKeepSize  uint32 = 1
	FallocPunchHole uint32 = 2
	FallocZeroRange uint32 = 16
)

// Whence of Lseek.
const (
	SeekData uint32 = 3
	SeekHole uint32 = 4
)

// Flags of SetXattr.
const (
	XattrCreate  uint32 = 1
	XattrReplace uint32 = 2
)

// StatFS is what df shows. The total is 1 PiB (or less what a quota allows).
type StatFS struct {
	BlockSize  uint32 // bytes
	Blocks     uint64
	BlocksFree uint64
	Files      uint64
	FilesFree  uint64
	NameMax    uint32
}
