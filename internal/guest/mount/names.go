package mount

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

func (t *tree) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	// After an OPEN that answered ENOSYS the kernel assumes these flags.
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	a, err := t.ws.Create(t.making(&in.InHeader, in.Umask), workspace.Ino(in.NodeId), name, in.Mode&0o7777)
	if err == syscall.EEXIST && in.Flags&syscall.O_EXCL == 0 {
		return t.createExisting(in, name, &out.EntryOut)
	}
	return t.entry(&out.EntryOut, a, err)
}

func (t *tree) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	a, err := t.ws.Tmpfile(t.making(&in.InHeader, in.Umask), workspace.Ino(in.NodeId), in.Mode&0o7777)
	return t.entry(&out.EntryOut, a, err)
}

// createExisting opens a file that the kernel believed absent: the API created it in the meantime.
func (t *tree) createExisting(in *fuse.CreateIn, name string, out *fuse.EntryOut) fuse.Status {
	a, err := t.ws.Lookup(t.caller(&in.InHeader), workspace.Ino(in.NodeId), name)
	if err == nil && in.Flags&syscall.O_TRUNC != 0 && a.IsRegular() {
		var set workspace.Attr
		set, err = t.ws.SetAttr(t.anonymous(&in.InHeader), a.Ino, workspace.SetAttrs{Mask: workspace.SetSize})
		a = set
	}
	return t.entry(out, a, err)
}

func (t *tree) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	a, err := t.ws.Mknod(t.making(&in.InHeader, in.Umask), workspace.Ino(in.NodeId), name, in.Mode, in.Rdev)
	return t.entry(out, a, err)
}

func (t *tree) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	a, err := t.ws.Mkdir(t.making(&in.InHeader, in.Umask), workspace.Ino(in.NodeId), name, in.Mode&0o7777)
	return t.entry(out, a, err)
}

func (t *tree) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	a, err := t.ws.Symlink(t.caller(h), workspace.Ino(h.NodeId), name, target)
	return t.entry(out, a, err)
}

func (t *tree) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	target, err := t.ws.Readlink(workspace.Ino(h.NodeId))
	return []byte(target), t.status(err)
}

func (t *tree) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	a, err := t.ws.Link(t.caller(&in.InHeader), workspace.Ino(in.Oldnodeid), workspace.Ino(in.NodeId), name)
	return t.entry(out, a, err)
}

func (t *tree) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	return t.status(t.ws.Unlink(t.caller(h), workspace.Ino(h.NodeId), name))
}

func (t *tree) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	return t.status(t.ws.Rmdir(t.caller(h), workspace.Ino(h.NodeId), name))
}

func (t *tree) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	return t.status(t.ws.Rename(t.caller(&in.InHeader), workspace.Ino(in.NodeId), from, workspace.Ino(in.Newdir), to, in.Flags))
}

// OpenDir answers ENOSYS, so that the kernel sends no further OPENDIR and
// RELEASEDIR and caches directories.
func (t *tree) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	if t.valid == 0 {
		return fuse.OK
	}
	return fuse.ENOSYS
}

func (t *tree) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	err := t.ws.ReadDir(t.caller(&in.InHeader), workspace.Ino(in.NodeId), in.Offset, false, func(e workspace.DirEntry) bool {
		return out.AddDirEntry(fuse.DirEntry{Name: e.Name, Mode: e.Mode, Ino: uint64(e.Ino), Off: e.Cookie})
	})
	return t.status(err)
}

// ReadDirPlus returns entries with attributes. The kernel counts each as a
// lookup except . and .., for which it must not get a node.
func (t *tree) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	err := t.ws.ReadDir(t.caller(&in.InHeader), workspace.Ino(in.NodeId), in.Offset, true, func(e workspace.DirEntry) bool {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.Name, Mode: e.Mode, Ino: uint64(e.Ino), Off: e.Cookie})
		if entry == nil {
			return false
		}
		if e.Name != "." && e.Name != ".." {
			t.fillEntry(entry, &e.Attr)
		}
		return true
	})
	return t.status(err)
}

func (t *tree) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if t.readOnly {
		return fuse.OK
	}
	return t.status(t.ws.Fsync(workspace.Ino(in.NodeId)))
}
