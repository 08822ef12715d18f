package agent

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
)

var (
	errNotFile = errors.New("it is not a regular file")
	// errCannotStay is returned if the disk has no room for both the temporary file
	// and the overwritten one.
	errCannotStay = errors.New("the file cannot be overwritten in place")
)

// receive writes a stream to a new file; long runs of zeros become holes.
func receive(f *os.File, r io.Reader) error {
	write := func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err }
	buf := make([]byte, maxChunk)
	for off := int64(0); ; {
		n, err := holt.ReadUpTo(r, buf)
		if failed := holt.EachData(buf[:n], off, write); failed != nil {
			return failed
		}
		off += int64(n)
		if err == io.EOF {
			return f.Truncate(off)
		}
		if err != nil {
			return err
		}
	}
}

// put moves the content of a temporary file to a path in the same directory. If
// the path does not exist, the temporary file is renamed. An existing file is
// overwritten: its inode, owner, mode, extended attributes, hard links and bind
// mounts stay. The new content is completely on disk before the first byte is
// overwritten, so a crash can leave a partly overwritten file and the complete
// new content beside it.
type put struct {
	temp    *os.File
	path    string
	user    *account // nil: the caller names none
	mode    uint32   // 0: an existing file keeps its own
	newMode uint32
}

func (p put) do() error {
	if err := p.temp.Sync(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Open(p.path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		switch {
		case err == unix.ENOENT:
			if err = p.create(); err != unix.EEXIST || tries > 2 {
				return err
			}
			continue // it has been created in the meantime
		case err == unix.ETXTBSY:
			return p.supplant()
		case err != nil:
			return err
		}
		old := os.NewFile(uintptr(fd), p.path)
		if err = p.overwrite(old); errors.Is(err, errCannotStay) {
			err = p.supplant()
		}
		old.Close()
		return err
	}
}

// create gives the temporary file the path, if nothing is there.
func (p put) create() error {
	owner, err := ownerOfNew(p.path, p.user)
	if err == nil {
		err = p.give(owner.uid, owner.gid, p.newMode)
	}
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, p.temp.Name(), unix.AT_FDCWD, p.path, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL { // not supported by the file system
		err = unix.Rename(p.temp.Name(), p.path)
	}
	return err
}

// give sets the owner and mode of the temporary file, and syncs it before it gets its name.
func (p put) give(uid, gid int, mode uint32) error {
	if err := p.temp.Chown(uid, gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(p.temp.Fd()), mode&0o7777); err != nil { // after chown, which clears set-id bits
		return err
	}
	return p.temp.Sync()
}

// supplant renames the temporary file over a file that cannot be overwritten: a
// running program, or a disk without room for both. Owner, mode and attributes
// stay, the inode does not.
func (p put) supplant() error {
	old, err := os.OpenFile(p.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer old.Close()
	was, err := statOf(old)
	if err != nil {
		return err
	}
	uid, gid, mode := p.keeping(was)
	if err := p.give(uid, gid, mode); err != nil {
		return err
	}
	if err := copyAttributes(p.temp, old); err != nil {
		return err
	}
	return unix.Rename(p.temp.Name(), p.path)
}

// keeping returns the owner and mode for the new content of an existing file.
func (p put) keeping(was unix.Stat_t) (uid, gid int, mode uint32) {
	uid, gid, mode = int(was.Uid), int(was.Gid), was.Mode&0o7777
	if p.user != nil {
		uid, gid = int(p.user.UID), int(p.user.GID)
	}
	if p.mode != 0 {
		mode = p.mode
	}
	return uid, gid, mode
}

// overwriting serialises writers of an inode, so that its content comes from one of them.
var overwriting [64]sync.Mutex

// overwrite copies the temporary file into an existing one.
func (p put) overwrite(old *os.File) (err error) {
	was, err := statOf(old)
	if err != nil {
		return err
	}
	if was.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotFile
	}
	lock := &overwriting[was.Ino%uint64(len(overwriting))]
	lock.Lock()
	defer lock.Unlock()
	is, err := statOf(p.temp)
	if err != nil {
		return err
	}
	if capability := attribute(old, "security.capability"); len(capability) > 0 { // a write removes it
		defer func() {
			if failed := unix.Fsetxattr(int(old.Fd()), "security.capability", capability, 0); err == nil {
				err = failed
			}
		}()
	}
	if err := p.reserve(old, is.Size, was.Size); err != nil {
		return err
	}
	uid, gid, mode := p.keeping(was)
	if uid != int(was.Uid) || gid != int(was.Gid) {
		if err := old.Chown(uid, gid); err != nil {
			return err
		}
	}
	// Neither content may be readable beyond its own mode: until the new content is
	// complete, only what both modes allow is allowed.
	if err := unix.Fchmod(int(old.Fd()), mode&was.Mode); err != nil {
		return err
	}
	if err := p.copyInto(old, is.Size, was.Size); err != nil {
		return err
	}
	if err := unix.Fchmod(int(old.Fd()), mode); err != nil { // after chown, which clears set-id bits
		return err
	}
	return old.Sync()
}

// reserve allocates space for the copy, so that a full disk is detected before
// anything is overwritten.
func (p put) reserve(old *os.File, size, was int64) error {
	return p.eachData(size, func(from, to int64) error {
		err := unix.Fallocate(int(old.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
			old.Truncate(was) // the space allocated behind its end
			return errCannotStay
		}
		return nil // not supported by the file system
	}, nil)
}

// copyInto copies the temporary file into an open file of was bytes.
func (p put) copyInto(old *os.File, size, was int64) error {
	err := p.eachData(size, func(from, to int64) error {
		if _, err := p.temp.Seek(from, io.SeekStart); err != nil {
			return err
		}
		if _, err := old.Seek(from, io.SeekStart); err != nil {
			return err
		}
		_, err := old.ReadFrom(io.LimitReader(p.temp, to-from)) // uses copy_file_range if possible
		return err
	}, func(from, to int64) error { return dig(old, from, min(to, was)) })
	if err == nil {
		err = old.Truncate(size)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = errCannotStay
	}
	return err
}

// dig makes a range of a file a hole, or zeros on a file system without holes.
func dig(f *os.File, from, to int64) error {
	if from >= to {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	if err != unix.EOPNOTSUPP {
		return err
	}
	_, err = io.CopyN(io.NewOffsetWriter(f, from), zeros{}, to-from)
	return err
}

// eachData calls data with the data ranges of the temporary file and hole,
// unless nil, with the holes.
func (p put) eachData(size int64, data, hole func(from, to int64) error) error {
	for off := int64(0); off < size; {
		from, to, err := holt.NextData(int(p.temp.Fd()), off, size)
		if err != nil {
			return err
		}
		if hole != nil && off < from {
			if err := hole(off, from); err != nil {
				return err
			}
		}
		if from < to {
			if err := data(from, to); err != nil {
				return err
			}
		}
		off = to
	}
	return nil
}

func statOf(f *os.File) (st unix.Stat_t, err error) { return st, unix.Fstat(int(f.Fd()), &st) }

// newOwner is the owner of a new file.
type newOwner struct {
	uid, gid int
	setGID   uint32 // set-group-id bit that a new directory inherits
}

// ownerOfNew returns the owner of a new file at a path: the named user, or the
// owner of its directory. In a world-writable directory such as /tmp it is the
// default user. A set-group-id directory passes on its group.
func ownerOfNew(path string, user *account) (newOwner, error) {
	var dir unix.Stat_t
	if err := unix.Stat(parentOf(strings.TrimRight(path, "/")), &dir); err != nil {
		return newOwner{}, err
	}
	owner := newOwner{int(dir.Uid), int(dir.Gid), dir.Mode & unix.S_ISGID}
	if user == nil && dir.Mode&(unix.S_ISVTX|unix.S_IWOTH) == unix.S_ISVTX|unix.S_IWOTH {
		if a, err := findAccount(defaultUser); err == nil {
			user = &a
		}
	}
	if user != nil {
		owner.uid = int(user.UID)
		if owner.setGID == 0 {
			owner.gid = int(user.GID)
		}
	}
	return owner, nil
}

// mostAttribute is Linux's maximum length of an extended attribute's value, and
// of the list of names.
const mostAttribute = 64 << 10

// attribute returns the value of an extended attribute, or nil.
func attribute(f *os.File, name string) []byte {
	value := make([]byte, mostAttribute)
	n, err := unix.Fgetxattr(int(f.Fd()), name, value)
	if err != nil {
		return nil
	}
	return value[:n]
}

// copyAttributes copies the extended attributes of a file.
func copyAttributes(to, from *os.File) error {
	names := make([]byte, mostAttribute)
	n, err := unix.Flistxattr(int(from.Fd()), names)
	if err == unix.EOPNOTSUPP {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		if err := unix.Fsetxattr(int(to.Fd()), name, attribute(from, name), 0); err != nil {
			return err
		}
	}
	return nil
}
