package workspace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// View is a workspace as it was at a checkpoint. Its methods are those of
// [Tree] that change nothing, with the same inode numbers and errors; ESTALE
// once the checkpoint was deleted. They may be called from any number of
// goroutines. A View holds nothing that has to be let go.
type View struct {
	t  *Tree
	at Checkpoint
}

// At returns the view at a checkpoint; see [Workspace.FindCheckpoint] for ref.
func (w *Workspace) At(ref string) (*View, error) {
	c, err := w.FindCheckpoint(ref)
	if err != nil {
		return nil, err
	}
	// What the checkpoint sees must be in the index; what comes later need not.
	if err := w.Flush(); err != nil {
		return nil, diskError("look at checkpoint", err)
	}
	return &View{w.tree, c}, nil
}

// Checkpoint returns what is looked at.
func (v *View) Checkpoint() Checkpoint { return v.at }

// read runs fn on one state of the index.
func (v *View) read(doing string, fn func(point) error) error {
	v.t.mu.RLock()
	_, ok := v.t.checkpoints.byID(v.at.ID)
	v.t.mu.RUnlock()
	if !ok {
		return syscall.ESTALE
	}
	err := v.t.readBriefly(context.Background(), func(tx *db.Tx) error { return fn(point{tx, int64(v.at.version)}) })
	return v.t.errno(doing, err)
}

// get returns an inode, or ENOENT.
func (p point) get(ino Ino) (*inodeRow, error) {
	in, err := p.inode(ino)
	if err == nil && in == nil {
		err = syscall.ENOENT
	}
	return in, err
}

func (in *inodeRow) attr() Attr {
	i := inode{node: in.node}
	return i.attr()
}

// GetAttr returns the attributes of ino.
func (v *View) GetAttr(ino Ino) (a Attr, err error) {
	err = v.read("read inode at checkpoint", func(p point) error {
		in, err := p.get(ino)
		if err == nil {
			a = in.attr()
		}
		return err
	})
	return a, err
}

// Lookup finds name in parent; "." and ".." too.
func (v *View) Lookup(parent Ino, name string) (a Attr, err error) {
	if len(name) > 255 {
		return Attr{}, syscall.ENAMETOOLONG
	}
	err = v.read("look up at checkpoint", func(p point) error {
		d, err := p.get(parent)
		if err != nil {
			return err
		}
		if !d.attr().IsDir() {
			return syscall.ENOTDIR
		}
		ino := parent
		switch name {
		case ".":
		case "..":
			ino = d.parent
		default:
			e, err := p.entry(parent, name)
			if err != nil {
				return err
			}
			ino = e.ino
		}
		in, err := p.get(ino)
		if err == nil {
			a = in.attr()
		}
		return err
	})
	return a, err
}

// Walk finds an absolute path and follows no symbolic links.
func (v *View) Walk(path string) (a Attr, err error) {
	err = v.read("look up at checkpoint", func(p point) error {
		e, err := p.walk(path)
		if err != nil {
			return err
		}
		in, err := p.get(e.ino)
		if err == nil {
			a = in.attr()
		}
		return err
	})
	return a, err
}

// viewPage is how many entries ReadDir reads at a time.
const viewPage = 1024

var errPage = errors.New("page is full")

// ReadDir is Tree.ReadDir. fn may call the View.
func (v *View) ReadDir(ino Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	for {
		page, err := v.page(ino, cookie, plus)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !fn(e) {
				return nil
			}
			cookie = e.Cookie
		}
		if len(page) < viewPage {
			return nil
		}
	}
}

// names is Tree.names.
func (v *View) names(dir Ino, after string, most int) (all []DirEntry, err error) {
	err = v.read("read directory at checkpoint", func(p point) error {
		return p.entriesByName(dir, after, most+len(seedNames), func(e placedEntry) error {
			in, err := p.get(e.ino)
			if err == nil && len(all) < most && !in.hidden(dir, e.name) {
				all = append(all, DirEntry{Name: e.name, Ino: e.ino, Mode: in.mode, Cookie: e.cookie + cookieDotDot, Attr: in.attr()})
			}
			return err
		})
	})
	return all, err
}

// page reads the next entries after a cookie.
func (v *View) page(ino Ino, cookie uint64, plus bool) (page []DirEntry, err error) {
	err = v.read("read directory at checkpoint", func(p point) error {
		d, err := p.get(ino)
		if err != nil {
			return err
		}
		if !d.attr().IsDir() {
			return syscall.ENOTDIR
		}
		if cookie < cookieDot {
			page = append(page, DirEntry{Name: ".", Ino: ino, Mode: syscall.S_IFDIR, Cookie: cookieDot, Attr: d.attr()})
		}
		if cookie < cookieDotDot {
			up, err := p.get(d.parent)
			if err != nil {
				up = d
			}
			page = append(page, DirEntry{Name: "..", Ino: up.ino, Mode: syscall.S_IFDIR, Cookie: cookieDotDot, Attr: up.attr()})
		}
		err = p.entries(ino, max(cookie, cookieDotDot)-cookieDotDot, func(e placedEntry) error {
			in, err := p.get(e.ino)
			if err != nil {
				return err
			}
			if in.hidden(ino, e.name) {
				return nil
			}
			de := DirEntry{Name: e.name, Ino: e.ino, Mode: in.mode & syscall.S_IFMT, Cookie: e.cookie + cookieDotDot}
			if plus {
				de.Mode, de.Attr = in.mode, in.attr()
			}
			if page = append(page, de); len(page) == viewPage {
				return errPage
			}
			return nil
		})
		if errors.Is(err, errPage) {
			err = nil
		}
		return err
	})
	return page, err
}

// Read fills p from offset off and returns how much.
func (v *View) Read(ino Ino, off int64, b []byte) (n int, err error) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	for try := 0; ; try++ {
		var parts []extent
		err = v.read("read at checkpoint", func(p point) error {
			in, err := p.get(ino)
			switch {
			case err != nil:
				return err
			case in.attr().IsDir():
				return syscall.EISDIR
			case !in.attr().IsRegular():
				return syscall.EINVAL
			}
			n = int(max(0, min(int64(len(b)), in.size-off)))
			parts, err = p.extents(ino, off, off+int64(n))
			return err
		})
		if err != nil || n == 0 {
			return 0, err
		}
		for i := range parts {
			parts[i] = parts[i].cut(off, off+int64(n))
		}
		err = v.t.fill(b[:n], off, parts)
		if errors.Is(err, journal.ErrGone) && try < 3 {
			continue // the checkpoint was deleted meanwhile: that is what the next look says
		}
		if err != nil {
			v.t.log.Error("stored bytes cannot be read", "ino", ino, "checkpoint", v.at.Name, "offset", off, "bytes", n, "error", err)
			return 0, syscall.EIO
		}
		return n, nil
	}
}

// Readlink returns a symbolic link's target.
func (v *View) Readlink(ino Ino) (target string, err error) {
	err = v.read("read link at checkpoint", func(p point) error {
		in, err := p.get(ino)
		if err == nil && in.mode&syscall.S_IFMT != syscall.S_IFLNK {
			err = syscall.EINVAL
		}
		if err == nil {
			target = in.target
		}
		return err
	})
	return target, err
}

// GetXattr returns the value; ENODATA if there is none.
func (v *View) GetXattr(ino Ino, name string) ([]byte, error) {
	all, mode, err := v.xattrs(ino)
	if err != nil {
		return nil, err
	}
	value, ok := all[name]
	if !ok {
		return nil, syscall.ENODATA
	}
	return shownACL(name, []byte(value), mode), nil
}

// ListXattr returns the names, sorted.
func (v *View) ListXattr(ino Ino) ([]string, error) {
	all, _, err := v.xattrs(ino)
	return slices.Sorted(maps.Keys(all)), err
}

func (v *View) xattrs(ino Ino) (all map[string]string, mode uint32, err error) {
	err = v.read("read attributes at checkpoint", func(p point) error {
		in, err := p.get(ino)
		if err != nil {
			return err
		}
		mode = in.mode
		all, err = p.xattrs(ino)
		return err
	})
	return all, mode, err
}

// Lseek is Tree.Lseek.
func (v *View) Lseek(ino Ino, off int64, whence uint32) (found int64, err error) {
	if whence != SeekData && whence != SeekHole {
		return 0, syscall.EINVAL
	}
	err = v.read("seek at checkpoint", func(p point) error {
		in, err := p.get(ino)
		switch {
		case err != nil:
			return err
		case !in.attr().IsRegular():
			return syscall.EINVAL
		case off < 0 || off >= in.size:
			return syscall.ENXIO
		}
		found, err = p.seek(in, off, whence)
		return err
	})
	return found, err
}

// seek looks at one window of extents after the other.
func (p point) seek(in *inodeRow, off int64, whence uint32) (int64, error) {
	for off < in.size {
		if whence == SeekData {
			next, ok, err := p.nextExtent(in.ino, off)
			if err == nil && (!ok || next >= in.size) {
				err = syscall.ENXIO
			}
			return max(off, next), err
		}
		end := min(in.size, (off/windowSize+1)*windowSize)
		parts, err := p.extents(in.ino, off, end)
		if err != nil {
			return 0, err
		}
		for _, e := range parts {
			if e.off > off {
				break
			}
			off = e.end()
		}
		if off < end {
			return off, nil
		}
	}
	return in.size, nil
}

// View returns the view at a checkpoint by its number, for a kernel that comes
// with one number after the other; ESTALE if there is no such checkpoint.
func (t *Tree) View(id CheckpointID) (*View, error) {
	t.mu.RLock()
	c, ok := t.checkpoints.byID(id)
	newest := t.count.NextCheck - 1
	t.mu.RUnlock()
	if !ok {
		return nil, syscall.ESTALE
	}
	if uint64(id) > t.viewable.Load() {
		if err := t.flush(); err != nil {
			return nil, t.errno("look at checkpoint", err)
		}
		for was := t.viewable.Load(); was < newest && !t.viewable.CompareAndSwap(was, newest); was = t.viewable.Load() {
		}
	}
	return &View{t, c}, nil
}

// Checkpoints lists the checkpoints, oldest first.
func (t *Tree) Checkpoints() []Checkpoint {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.checkpoints)
}

// CheckpointNamed returns the number of the checkpoint with exactly that name.
func (t *Tree) CheckpointNamed(name string) (id CheckpointID, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.checkpoints.byName(name)
	return c.ID, ok
}

// NewestCheckpoint returns when the newest checkpoint was taken, and how many there are.
func (t *Tree) NewestCheckpoint() (taken time.Time, n int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n = len(t.checkpoints); n > 0 {
		taken = t.checkpoints[n-1].CreatedAt
	}
	return taken, n
}
