package workspace

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/parcel"
)

// ExportSpec says what of a workspace goes into a parcel.
type ExportSpec struct {
	Path    string // a directory
	At      *View  // the state to send; nil: the present
	Devices bool   // device nodes too
	SetID   bool   // keep set-user-id and set-group-id bits
}

// Export writes a directory with everything in it as a parcel. Of the present
// it is not one snapshot: what changes meanwhile is sent as it is met, and what is
// removed is left out.
//
// Errors: NotFound, InvalidArgument (not a directory), Corrupt, and what out
// returns.
func (w *Workspace) Export(ctx context.Context, out *parcel.Writer, spec ExportSpec) (holt.TransferReport, error) {
	x := exporter{ctx: ctx, t: w.tree, out: out, spec: spec, linked: map[Ino]bool{}, buf: make([]byte, parcel.MostData)}
	if spec.At != nil {
		x.t = spec.At
	}
	top, err := find(x.t, spec.Path, true)
	if err == nil && !top.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = x.dir(top, "", strings.TrimSuffix(spec.Path, "/"))
	}
	x.report.Entries, x.report.Bytes = out.Sent.Entries, out.Sent.Bytes
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = fileError("export", spec.Path, err)
	}
	return x.report, err
}

type exporter struct {
	ctx    context.Context
	t      reading
	out    *parcel.Writer
	spec   ExportSpec
	linked map[Ino]bool // files with several names that were sent
	buf    []byte
	report holt.TransferReport
}

// pageOfDir is how many entries are held at once: a directory may have
// millions.
const pageOfDir = 1024

func (x *exporter) dir(a Attr, name, path string) error {
	e := x.entry(a, name)
	if err := x.send(a, &e); err != nil {
		return err
	}
	page := make([]DirEntry, 0, 64)
	for cookie := uint64(cookieDotDot); ; {
		page = page[:0]
		err := x.t.readDir(a.Ino, cookie, true, func(d DirEntry) bool {
			page = append(page, d)
			return len(page) < pageOfDir
		})
		if err != nil && err != syscall.ENOENT {
			return err
		}
		if len(page) == 0 {
			return x.out.Up()
		}
		for _, d := range page {
			if err := x.ctx.Err(); err != nil {
				return err
			}
			if err := x.child(d, path+"/"+d.Name); err != nil {
				return err
			}
		}
		if len(page) < pageOfDir {
			return x.out.Up()
		}
		cookie = page[len(page)-1].Cookie
	}
}

func (x *exporter) entry(a Attr, name string) parcel.Entry {
	e := parcel.Entry{Kind: parcel.KindOf(a.Mode), Name: name, Mode: a.Mode & 07777, UID: a.UID, GID: a.GID, Mtime: a.Mtime, Atime: a.Atime}
	if !x.spec.SetID && e.Kind != parcel.Dir {
		e.Mode &^= syscall.S_ISUID | syscall.S_ISGID
	}
	if e.Kind.Device() {
		e.Rdev = a.Rdev
	}
	return e
}

// send writes an entry with its user attributes and ACLs.
func (x *exporter) send(a Attr, e *parcel.Entry) error {
	names, err := x.t.ListXattr(a.Ino)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !parcel.Carries(name) {
			continue
		}
		value, err := x.t.GetXattr(a.Ino, name)
		if err == syscall.ENODATA {
			continue
		}
		if err != nil {
			return err
		}
		e.Xattrs = append(e.Xattrs, parcel.Xattr{Name: name, Value: value})
	}
	return x.out.Entry(e)
}

// child sends what a directory holds under a name. What is gone by now is
// left out, as long as nothing of it was sent.
func (x *exporter) child(d DirEntry, path string) error {
	a, e := d.Attr, x.entry(d.Attr, d.Name)
	err := error(nil)
	switch {
	case e.Kind == parcel.Dir:
		err = x.dir(a, d.Name, path)
	case e.Kind == parcel.File:
		return x.file(a, &e)
	case e.Kind.Device() && !x.spec.Devices:
		if x.report.Devices++; len(x.report.LeftOut) < 100 {
			x.report.LeftOut = append(x.report.LeftOut, strings.ToValidUTF8(path, "\uFFFD"))
		}
		return nil
	case e.Kind == parcel.Symlink:
		if e.Target, err = x.t.Readlink(a.Ino); err == nil {
			return x.out.Entry(&e)
		}
	default:
		err = x.send(a, &e)
	}
	if err == syscall.ENOENT {
		return nil
	}
	return err
}

func (x *exporter) file(a Attr, e *parcel.Entry) error {
	if a.Nlink > 1 {
		e.ID = uint64(a.Ino)
		if x.linked[a.Ino] {
			return x.out.Entry(&parcel.Entry{Kind: parcel.Link, Name: e.Name, ID: e.ID})
		}
		x.linked[a.Ino] = true
	}
	e.Size = a.Size
	err := x.send(a, e)
	if err == syscall.ENOENT {
		delete(x.linked, a.Ino)
		return nil
	}
	if err != nil {
		return err
	}
	err = x.content(a)
	if err == syscall.ENOENT { // removed: its entry is out, so it ends as a hole
		return nil
	}
	return err
}

// content sends the bytes without the holes.
func (x *exporter) content(a Attr) error {
	sparse := a.Blocks*512 < a.Size
	for off, end := int64(0), int64(0); off < a.Size; {
		if off >= end {
			end = a.Size
			if sparse {
				var err error
				off, err = x.t.Lseek(a.Ino, off, SeekData)
				if err == syscall.ENXIO || off >= a.Size {
					return nil
				}
				if err != nil {
					return err
				}
				if end, err = x.t.Lseek(a.Ino, off, SeekHole); err != nil && err != syscall.ENXIO {
					return err
				}
				end = min(end, a.Size)
			}
		}
		n, err := x.t.Read(a.Ino, off, x.buf[:max(0, min(int64(len(x.buf)), end-off))])
		if err != nil || n == 0 { // 0: it became shorter
			return err
		}
		if err := x.out.Data(off, x.buf[:n]); err != nil {
			return err
		}
		off += int64(n)
		if err := x.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
