package parcel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unpack writes a parcel into dir, which it creates if needed. Entries replace
// existing files of the same name and merge with existing directories; nothing
// else is touched. After an error the entries written so far stay, and Report
// counts them.
func Unpack(ctx context.Context, r *Reader, dir string, opt Options) (Report, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return Report{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Report{}, err
	}
	defer root.Close()
	u := &unpacker{ctx: ctx, r: r, opt: opt, root: root, linked: map[uint64]string{}, file: -1}
	defer u.close()
	err = u.run(dir)
	u.report.Totals = r.Got
	return u.report, err
}

// unpacker holds open the directories from the top to the current one.
// Everything is created relative to the last.
type unpacker struct {
	ctx    context.Context
	r      *Reader
	opt    Options
	root   *os.Root
	dirs   []openDir
	linked map[uint64]string // paths of files with several names, below the root; "": the file was refused
	file   int               // descriptor of the current file; -1: none, or it was refused
	entry  Entry             // of it
	report Report
}

type openDir struct {
	fd    int
	path  string // below the root
	entry Entry
}

func (u *unpacker) close() {
	if u.file >= 0 {
		unix.Close(u.file)
	}
	for _, d := range u.dirs {
		unix.Close(d.fd)
	}
}

func (u *unpacker) run(dir string) error {
	for {
		event, err := u.r.Next()
		if err == nil {
			err = u.ctx.Err()
		}
		if err == nil && event != Bytes {
			err = u.endFile()
		}
		if err != nil {
			return err
		}
		switch event {
		case Entered:
			if u.opt.Progress != nil {
				u.opt.Progress(u.r.Entry.Name, u.r.Got)
			}
			err = u.enter(dir)
		case Bytes:
			err = u.write()
		case Up:
			err = u.up()
		case End:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// at returns the current directory.
func (u *unpacker) at() *openDir { return &u.dirs[len(u.dirs)-1] }

func (u *unpacker) fail(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	path := name
	if len(u.dirs) > 0 {
		path = u.path(name)
	}
	return &os.PathError{Op: doing, Path: path, Err: err}
}

// path returns the path of name below the root.
func (u *unpacker) path(name string) string {
	if p := u.at().path; p != "" {
		return p + "/" + name
	}
	return name
}

func (u *unpacker) enter(dir string) error {
	e := u.r.Entry
	if !u.opt.SetID && e.Kind != Dir {
		e.Mode &^= syscall.S_ISUID | syscall.S_ISGID
	}
	if len(u.dirs) == 0 {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		u.dirs = append(u.dirs, openDir{fd: fd, entry: e})
		return nil
	}
	in := u.at().fd
	switch e.Kind {
	case Dir:
		return u.fail("make", e.Name, u.makeDir(in, e))
	case File:
		return u.fail("make", e.Name, u.makeFile(in, e))
	case Link:
		return u.fail("link", e.Name, u.makeLink(in, e))
	}
	if e.Kind.Device() && !u.opt.Devices {
		u.report.leaveOut(u.path(e.Name))
		return nil
	}
	return u.fail("make", e.Name, u.makeOther(in, e))
}

// vacate removes name unless it is a directory.
func vacate(in int, name string) error {
	if err := unix.Unlinkat(in, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (u *unpacker) makeDir(in int, e Entry) error {
	if len(u.dirs) > mostDepth {
		return formatError("directories nested more than %d deep", mostDepth)
	}
	// Its final mode may forbid writing into it: that is set when it is complete.
	if err := unix.Mkdirat(in, e.Name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Openat(in, e.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	u.dirs = append(u.dirs, openDir{fd: fd, path: u.path(e.Name), entry: e})
	return nil
}

func (u *unpacker) makeFile(in int, e Entry) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(in, e.Name, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err = vacate(in, e.Name); err == nil {
			fd, err = unix.Openat(in, e.Name, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	u.file, u.entry = fd, e
	if e.ID != 0 {
		if len(u.linked) >= mostLinked {
			return formatError("more than %d files with several names", mostLinked)
		}
		u.linked[e.ID] = u.path(e.Name)
	}
	return nil
}

func (u *unpacker) makeLink(in int, e Entry) error {
	first, ok := u.linked[e.ID]
	if !ok {
		return formatError("a link to an unknown file")
	}
	if first == "" {
		return u.refused(e.Name, unix.EFBIG)
	}
	if err := vacate(in, e.Name); err != nil {
		return err
	}
	return u.root.Link(first, u.path(e.Name)) // os.Root: never outside the root
}

func (u *unpacker) makeOther(in int, e Entry) error {
	err := vacate(in, e.Name)
	if err != nil {
		return err
	}
	if e.Kind == Symlink {
		err = unix.Symlinkat(e.Target, in, e.Name)
	} else {
		err = unix.Mknodat(in, e.Name, e.Kind.TypeBits()|e.Mode&0o777, int(e.Rdev))
	}
	if err == nil && u.opt.Owner {
		err = unix.Fchownat(in, e.Name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && e.Kind != Symlink {
		err = unix.Fchmodat(in, e.Name, e.Mode, 0) // independent of the umask; name is not a link
	}
	if err == nil {
		err = setTimes(in, e)
	}
	return err
}

func setTimes(in int, e Entry) error {
	times := []unix.Timespec{unix.NsecToTimespec(e.Atime), unix.NsecToTimespec(e.Mtime)}
	return unix.UtimesNanoAt(in, e.Name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// write writes data of the current file. Ranges without data become holes.
func (u *unpacker) write() error {
	for data, off := u.r.Data, u.r.Off; len(data) > 0 && u.file >= 0; {
		n, err := unix.Pwrite(u.file, data, off)
		if errors.Is(err, unix.EFBIG) && u.opt.Refused != nil {
			return u.leaveFile()
		}
		if err != nil {
			return u.fail("write", u.entry.Name, err)
		}
		data, off = data[n:], off+int64(n)
	}
	return nil
}

// endFile sets the size and attributes of the current file.
func (u *unpacker) endFile() error {
	if u.file < 0 {
		return nil
	}
	fd := u.file
	err := unix.Ftruncate(fd, u.entry.Size)
	if errors.Is(err, unix.EFBIG) && u.opt.Refused != nil {
		return u.leaveFile()
	}
	u.file = -1
	if err == nil {
		err = u.attributes(fd, u.entry)
	}
	if err == nil {
		err = setTimes(u.at().fd, u.entry)
	}
	return u.fail("finish", u.entry.Name, errors.Join(err, unix.Close(fd)))
}

// refused reports something that the file system refuses.
func (u *unpacker) refused(name string, why error) error {
	if u.opt.Refused == nil {
		return why
	}
	u.opt.Refused(u.path(name), why)
	return nil
}

// leaveFile leaves out the current file, which is too large.
func (u *unpacker) leaveFile() error {
	fd := u.file
	u.file = -1
	if u.entry.ID != 0 {
		u.linked[u.entry.ID] = ""
	}
	err := errors.Join(unix.Close(fd), unix.Unlinkat(u.at().fd, u.entry.Name, 0))
	if err == nil {
		err = u.refused(u.entry.Name, unix.EFBIG)
	}
	return u.fail("leave out", u.entry.Name, err)
}

// attributes sets owner, mode, user attributes and ACLs. Attributes are skipped
// on a file system that has none.
func (u *unpacker) attributes(fd int, e Entry) error {
	if u.opt.Owner {
		if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
			return err
		}
	}
	for _, x := range e.Xattrs {
		err := unix.Fsetxattr(fd, x.Name, x.Value, 0)
		switch {
		case err == nil, errors.Is(err, unix.EOPNOTSUPP):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.E2BIG): // the limit for one file; the disk may have room
			err := fmt.Errorf("attribute %s: the file system cannot store more attributes in this file", strings.ToValidUTF8(x.Name, "?"))
			if err = u.refused(e.Name, err); err != nil {
				return err
			}
		default:
			return fmt.Errorf("attribute %s: %w", strings.ToValidUTF8(x.Name, "?"), err)
		}
	}
	for _, name := range e.WithoutACL() { // an ACL may have been inherited from the directory
		err := unix.Fremovexattr(fd, name)
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return unix.Fchmod(fd, e.Mode)
}

// up completes a directory: it sets its mode and times. The top directory keeps its mode.
func (u *unpacker) up() error {
	d := *u.at()
	u.dirs = u.dirs[:len(u.dirs)-1]
	defer unix.Close(d.fd)
	if len(u.dirs) == 0 {
		return nil
	}
	err := u.attributes(d.fd, d.entry)
	if err == nil {
		err = setTimes(u.at().fd, d.entry)
	}
	return u.fail("finish", d.entry.Name, err)
}
