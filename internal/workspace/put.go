package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"

	"holt"
)

// Write gives a file the content of r once all of it has arrived; the old stays if r fails. An existing file keeps its inode, owner,
// mode, attributes and other names, unless spec names a mode, or a User, who is the Caller then. See [Tree.Overwrite] for who reads it meanwhile.
func (f Files) Write(ctx context.Context, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	return f.write(path, spec, func(d Attr, name string) error { return f.put(ctx, d, name, spec, r) })
}

// Adopt is Write of bytes that the archive has in another space, in the order of sources. It copies none of them.
func (f Files) Adopt(ctx context.Context, path string, spec holt.WriteSpec, space string, sources []Source) (holt.FileInfo, error) {
	return f.write(path, spec, func(d Attr, name string) error {
		if _, err := f.target(d, name); err != nil && err != syscall.ENOENT {
			return err
		}
		return f.beside(d, name, spec, func(ino Ino) error { return f.Tree.adopt(ctx, f.Caller, ino, space, sources) })
	})
}

func (f Files) write(path string, spec holt.WriteSpec, put func(d Attr, name string) error) (holt.FileInfo, error) {
	if spec.Parents {
		if err := f.mkdirs(parentOf(path), 0o755); err != nil {
			return holt.FileInfo{}, fileError("make", parentOf(path), err)
		}
	}
	at, err := f.follow(path)
	if err != nil {
		return holt.FileInfo{}, fileError("write", path, err)
	}
	d, name, err := f.parent(at)
	if err == nil {
		err = put(d, name)
	}
	if err != nil {
		return holt.FileInfo{}, fileError("write", path, err)
	}
	f.changed(d.Ino, name)
	return f.Stat(at)
}

// put writes beside the target. If that is there, it gets the bytes, else what was written gets the name. The target is
// looked up once all has arrived, which may take hours: meanwhile the name may have become another file's.
func (f Files) put(ctx context.Context, dir Attr, name string, spec holt.WriteSpec, r io.Reader) error {
	if _, err := f.target(dir, name); err != nil && err != syscall.ENOENT {
		return err // before anything is read
	}
	// A file that is cut off early is never seen, not even beside its name.
	first := make([]byte, chunk)
	n, err := holt.ReadUpTo(r, first)
	if err != nil && err != io.EOF {
		return arrival(err)
	}
	return f.beside(dir, name, spec, func(ino Ino) error { return f.fill(ctx, ino, io.MultiReader(bytes.NewReader(first[:n]), r)) })
}

// beside has write give a new file its bytes, and then the target gets them.
func (f Files) beside(dir Attr, name string, spec holt.WriteSpec, write func(Ino) error) error {
	beside, mode := tempName(), spec.ModeOfNew()
	a, err := f.Tree.Create(f.maker(dir), dir.Ino, beside, mode)
	if err != nil {
		return err
	}
	err = write(a.Ino)
	if err == nil && mode&(syscall.S_ISUID|syscall.S_ISGID) != 0 { // writing took them away
		_, err = f.Tree.SetAttr(f.Caller, a.Ino, SetAttrs{Mask: SetMode, Mode: mode})
	}
	if err == nil {
		err = f.Tree.Fsync(a.Ino)
	}
	if err == nil {
		err = f.place(a.Ino, beside, dir, name, spec)
	}
	if gone := f.Tree.Unlink(f.Caller, dir.Ino, beside); gone != syscall.ENOENT { // it has the name
		err = errors.Join(err, gone)
	}
	return errors.Join(err, f.Tree.Sync())
}

// place gives the target the bytes that were written beside it or, where nothing is, what was written the name.
func (f Files) place(from Ino, beside string, dir Attr, name string, spec holt.WriteSpec) error {
	for tries := 0; ; tries++ {
		old, err := f.target(dir, name)
		if err == nil {
			err = f.overwrite(from, old, spec)
			f.changed(old.Ino, "")
			return err
		}
		if err == syscall.ENOENT {
			err = f.Tree.Rename(f.Caller, dir.Ino, beside, dir.Ino, name, RenameNoReplace)
		}
		if err != syscall.EEXIST || tries > 2 { // else somebody has made it meanwhile
			return err
		}
	}
}

// target returns the file that is to be overwritten.
func (f Files) target(dir Attr, name string) (Attr, error) {
	a, err := f.Tree.Lookup(Caller{}, dir.Ino, name)
	switch {
	case err == nil && a.IsDir():
		err = syscall.EISDIR
	case err == nil && !a.IsRegular():
		err = holt.Errorf(holt.InvalidArgument, "write %s: it is a %s, not a file", strings.ToValidUTF8(name, "\uFFFD"), KindName(a.Mode))
	}
	return a, err
}

// overwrite gives an existing file the bytes of another, and the owner and mode that spec names.
func (f Files) overwrite(from Ino, old Attr, spec holt.WriteSpec) error {
	root := Caller{Writer: f.Caller.Writer} // whose writing takes no set-id bits away
	var set SetAttrs
	if spec.User != "" { // a new owner takes set-id bits away
		set = SetAttrs{Mask: SetUID | SetGID | SetMode, Mode: old.Mode & 07777, UID: f.Caller.UID, GID: f.Caller.GID}
	}
	if spec.Mode != 0 {
		set.Mask, set.Mode = set.Mask|SetMode, spec.Mode
	}
	return f.Tree.Overwrite(root, from, old.Ino, set)
}

// maker is the caller as whom something is made in a directory.
func (f Files) maker(dir Attr) Caller {
	c := f.Caller
	if everybody := uint32(syscall.S_ISVTX | 0o002); f.Inherit && dir.Mode&everybody != everybody {
		c.UID, c.GID = dir.UID, dir.GID
	}
	return c
}

// fill writes what comes to a new file; long runs of zeros become holes.
func (f Files) fill(ctx context.Context, ino Ino, r io.Reader) error {
	var end int64 // of the data
	write := func(p []byte, off int64) error {
		end = off + int64(len(p))
		_, err := f.Tree.Write(f.Caller, ino, off, p)
		return err
	}
	buf := make([]byte, chunk)
	for off := int64(0); ; {
		n, err := holt.ReadUpTo(r, buf)
		if failed := holt.EachData(buf[:n], off, write); failed != nil {
			return failed
		}
		off += int64(n)
		if err == io.EOF && end < off { // it ends with a hole
			_, err = f.Tree.SetAttr(f.Caller, ino, SetAttrs{Mask: SetSize, Size: off})
			return errors.Join(err, ctx.Err())
		}
		if err == io.EOF {
			return ctx.Err()
		}
		if err != nil {
			return arrival(err)
		}
	}
}

func arrival(err error) error {
	return holt.Errorf(holt.Unavailable, "reading the new content failed: %w", err)
}
