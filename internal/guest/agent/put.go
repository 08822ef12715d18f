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
	// errCannotStay says that there is no room to overwrite an existing file while the temporary one is there.
	errCannotStay = errors.New("the file cannot be overwritten in place")
)

// receive writes what comes to a new file; long runs of zeros become holes.
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

// put gives a path the content of a temporary file beside it. Where no file is, the temporary file gets the name. An
// existing file is overwritten: its inode, owner, mode, extended attributes and hard links stay, and so does what is
// mounted from it. All of the new content is on the disk before the first byte is overwritten, so what a crash can leave
// is a half overwritten file with the whole new content beside it.
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
			continue // somebody has made it meanwhile
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

// create gives the temporary file the path, where nothing is.
func (p put) create() error {
	owner, err := ownerOfNew(p.path, p.user)
	if err == nil {
		err = p.give(owner.uid, owner.gid, p.newMode)
	}
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, p.temp.Name(), unix.AT_FDCWD, p.path, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL { // a file system without that
		err = unix.Rename(p.temp.Name(), p.path)
	}
	return err
}

// give gives the temporary file its owner and mode, and syncs it before it gets a name.
func (p put) give(uid, gid int, mode uint32) error {
	if err := p.temp.Chown(uid, gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(p.temp.Fd()), mode&0o7777); err != nil { // after chown, which clears set-id bits
		return err
	}
	return p.temp.Sync()
}

// supplant renames the temporary file over a file that cannot be overwritten: a program that runs, or one for which the
// disk has no room twice. Owner, mode and attributes stay, the inode does not.
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

// keeping returns the owner and mode that a file gets which has others now.
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

// overwriting has one writer at a time overwrite an inode, so that one's content is whole.
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
	if capability := attribute(old, "security.capability"); len(capability) > 0 { // a write takes it away
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
	// Neither content is readable by more than it is meant for: until the new one is there, what both modes allow counts.
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

// reserve has the disk set room aside for what is to be copied, so that a full one is met before anything is overwritten.
func (p put) reserve(old *os.File, size, was int64) error {
	return p.eachData(size, func(from, to int64) error {
		err := unix.Fallocate(int(old.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
			old.Truncate(was) // what was set aside behind its end
			return errCannotStay
		}
		return nil // the file system sets nothing aside
	}, nil)
}

// copyInto makes the content of an open file of was bytes that of the temporary one.
func (p put) copyInto(old *os.File, size, was int64) error {
	err := p.eachData(size, func(from, to int64) error {
		if _, err := p.temp.Seek(from, io.SeekStart); err != nil {
			return err
		}
		if _, err := old.Seek(from, io.SeekStart); err != nil {
			return err
		}
		_, err := old.ReadFrom(io.LimitReader(p.temp, to-from)) // by copy_file_range where that can
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

// dig makes a range of a file a hole; zeros on a file system without holes.
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

// eachData calls data with the ranges of the temporary file that are no holes, and hole, unless nil, with the others.
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

// newOwner is who owns what is new.
type newOwner struct {
	uid, gid int
	setGID   uint32 // the bit that a new directory inherits
}

// ownerOfNew returns who owns what is made at a path: the user that was named, or the owner of its directory. In one where everybody may
// make files, as /tmp, that is the default user. A directory with the set-group-id bit gives its group.
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

// mostAttribute is how long the value of an extended attribute, and the list of their names, is on Linux.
const mostAttribute = 64 << 10

// attribute returns the value of an extended attribute; nil if there is none.
func attribute(f *os.File, name string) []byte {
	value := make([]byte, mostAttribute)
	n, err := unix.Fgetxattr(int(f.Fd()), name, value)
	if err != nil {
		return nil
	}
	return value[:n]
}

// copyAttributes gives a file the extended attributes of another.
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
