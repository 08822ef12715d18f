package parcel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holt"
)

// Options choose what is sent. The zero value is safe.
type Options struct {
	Devices bool // include device nodes
	SetID   bool // keep set-user-id and set-group-id bits
	Owner   bool // Unpack: restore numeric owners; needs root

	// Skip, for Pack and Measure, reports whether to leave out a path below the
	// top, with everything in it. Nil: nothing is left out.
	Skip func(path string, kind Kind) (bool, error)

	// Unread, for Pack and Measure, is called for a path that cannot be opened; it
	// is left out and the rest continues. Nil: the call fails.
	Unread func(path string, why error)

	// Progress is called occasionally with the totals so far; name is the current file. May be nil.
	Progress func(name string, done Totals)

	// Refused, for Unpack, is called for what the file system refuses: a file that
	// is too large, which is left out with its links, or an attribute. The rest
	// continues. Nil: the call fails.
	Refused func(path string, why error)
}

// Report is what was transferred.
type Report struct {
	Totals
	LeftOut []string // device nodes that Options excluded, at most 100 paths
	Devices int64    // their number
}

func (r *Report) leaveOut(path string) {
	if r.Devices++; len(r.LeftOut) < 100 {
		r.LeftOut = append(r.LeftOut, path)
	}
}

// Measure returns the totals that Pack would send. Concurrent changes may or may not be counted.
func Measure(ctx context.Context, dir string, opt Options) (t Totals, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil && path != dir && opt.Unread != nil {
			return nil // Pack reports the error
		}
		if err != nil {
			return err
		}
		if opt.Skip != nil && path != dir {
			skip, err := opt.Skip(path, KindOfFile(d.Type()))
			if skip && d.IsDir() {
				return filepath.SkipDir
			}
			if skip || err != nil {
				return err
			}
		}
		t.Entries++
		if d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				t.Bytes += info.Size()
			}
		}
		return ctx.Err()
	})
	return t, err
}

// Pack writes the directory dir with everything in it. Symbolic links are sent
// as links, never followed. A file that cannot be read fails the call with an
// error that names it, unless Options.Unread is set.
func Pack(ctx context.Context, dir string, w *Writer, opt Options) (Report, error) {
	p := &packer{ctx: ctx, w: w, opt: opt, linked: map[[2]uint64]uint64{}, buf: make([]byte, MostData)}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return p.report, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	err = p.dir(fd, "", dir)
	p.report.Totals = w.Sent
	return p.report, err
}

type packer struct {
	ctx    context.Context
	w      *Writer
	opt    Options
	linked map[[2]uint64]uint64 // (device, inode) of files with several names
	buf    []byte
	report Report
}

// dir sends the directory open at fd, and closes it.
func (p *packer) dir(fd int, name, path string) error {
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	e := p.entry(Dir, name, &st)
	if err := p.send(fd, path, &e); err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := p.child(fd, name, path+"/"+name); err != nil {
			return err
		}
	}
	return p.w.Up()
}

func (p *packer) entry(kind Kind, name string, st *unix.Stat_t) Entry {
	e := Entry{Kind: kind, Name: name, Mode: st.Mode & 07777, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano(), Atime: st.Atim.Nano()}
	if !p.opt.SetID && kind != Dir {
		e.Mode &^= syscall.S_ISUID | syscall.S_ISGID
	}
	if kind.Device() {
		e.Rdev = uint32(st.Rdev)
	}
	return e
}

func (p *packer) child(dir int, name, path string) error {
	if p.opt.Progress != nil {
		p.opt.Progress(path, p.w.Sent)
	}
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed in the meantime
	}
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	kind := KindOf(st.Mode)
	if p.opt.Skip != nil {
		if skip, err := p.opt.Skip(path, kind); skip || err != nil {
			return err
		}
	}
	switch {
	case kind == Dir, kind == File:
		return p.open(dir, name, path, kind)
	case kind.Device() && !p.opt.Devices:
		p.report.leaveOut(path)
		return nil
	case kind == 0:
		return fmt.Errorf("%s has an unknown file type", path)
	}
	e := p.entry(kind, name, &st)
	if kind == Symlink {
		buf := make([]byte, mostTarget+1)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: path, Err: err}
		}
		e.Target = string(buf[:n])
	}
	return p.w.Entry(&e)
}

// open opens a directory or file and sends it, if it still has the expected kind.
func (p *packer) open(dir int, name, path string, kind Kind) error {
	flags := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if kind == Dir {
		flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat(dir, name, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil && p.opt.Unread != nil {
		p.opt.Unread(path, err)
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if kind == Dir {
		return p.dir(fd, name, path)
	}
	defer unix.Close(fd)
	return p.file(fd, name, path)
}

func (p *packer) file(fd int, name, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if KindOf(st.Mode) != File {
		return fmt.Errorf("%s was replaced while it was being read", path)
	}
	e := p.entry(File, name, &st)
	e.Size = st.Size
	if st.Nlink > 1 {
		key := [2]uint64{uint64(st.Dev), st.Ino}
		if id, ok := p.linked[key]; ok {
			return p.w.Entry(&Entry{Kind: Link, Name: name, ID: id})
		}
		if len(p.linked) < mostLinked {
			e.ID = uint64(len(p.linked) + 1)
			p.linked[key] = e.ID
		}
	}
	if err := p.send(fd, path, &e); err != nil {
		return err
	}
	if err := p.content(fd, &st); err != nil {
		return &os.PathError{Op: "read", Path: path, Err: err}
	}
	return nil
}

// send writes the entry with the attributes of the file open at fd.
func (p *packer) send(fd int, path string, e *Entry) error {
	var err error
	if e.Xattrs, err = xattrsOf(fd); err != nil {
		return &os.PathError{Op: "read attributes of", Path: path, Err: err}
	}
	return p.w.Entry(e)
}

// content sends the bytes without the holes.
func (p *packer) content(fd int, st *unix.Stat_t) error {
	sparse := st.Blocks*512 < st.Size
	for off, end := int64(0), int64(0); off < st.Size; {
		if off >= end {
			end = st.Size
			if sparse {
				var err error
				if off, end, err = holt.NextData(fd, off, st.Size); err != nil || off >= st.Size {
					return err
				}
			}
		}
		n, err := unix.Pread(fd, p.buf[:min(int64(len(p.buf)), end-off)], off)
		if err != nil || n == 0 { // 0: it was truncated
			return err
		}
		if err := p.w.Data(off, p.buf[:n]); err != nil {
			return err
		}
		off += int64(n)
		if err := p.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// xattrsOf returns the attributes to send.
func xattrsOf(fd int) ([]Xattr, error) {
	var small [512]byte
	buf := small[:]
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, 64<<10)
		n, err = unix.Flistxattr(fd, buf)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	var all []Xattr
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if !Carries(name) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Xattr{name, slices.Clone(value[:n])})
	}
	return all, nil
}
