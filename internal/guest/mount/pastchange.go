package mount

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// fixed reports whether a name cannot be created or removed: it is in the past or belongs to it.
func (p past) fixed(dir uint64, name string) bool { return isPast(dir) || p.holds(dir, name) }

func (p past) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if p.fixed(in.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Create(cancel, in, name, out)
}

func (p past) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.EROFS
	}
	return p.tree.Tmpfile(cancel, in, out)
}

func (p past) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if p.fixed(in.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Mknod(cancel, in, name, out)
}

func (p past) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if p.fixed(in.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Mkdir(cancel, in, name, out)
}

func (p past) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	if p.fixed(h.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Symlink(cancel, h, target, name, out)
}

func (p past) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	switch {
	case p.fixed(in.NodeId, name):
		return fuse.EROFS
	case isPast(in.Oldnodeid):
		return fuse.EXDEV
	}
	defer p.unveil(in.Oldnodeid)()
	return p.tree.Link(cancel, in, name, out)
}

func (p past) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if p.fixed(h.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Unlink(cancel, h, name)
}

func (p past) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if p.fixed(h.NodeId, name) {
		return fuse.EROFS
	}
	return p.tree.Rmdir(cancel, h, name)
}

func (p past) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if p.fixed(in.NodeId, from) || p.fixed(in.Newdir, to) {
		return fuse.EROFS
	}
	return p.tree.Rename(cancel, in, from, to)
}

func (p past) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.EROFS
	}
	defer p.unveil(in.NodeId)()
	return p.tree.SetAttr(cancel, in, out)
}

// Write refuses writes to the past. Writes from the kernel's page cache come
// from shared mappings, for which no permission is checked, and the kernel
// keeps the changed page: it is told to drop its cache of the file, and then
// reads the original.
func (p past) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if isPast(in.NodeId) {
		if in.WriteFlags&fuse.WRITE_CACHE != 0 {
			if err := p.notifier.Notify(Change{Ino: workspace.Ino(in.NodeId)}); err != nil {
				p.full.Do(func() { // log once: a guest may repeat this without end
					p.log.Warn("a kernel may show changes of its cached copy of a checkpoint", "node", in.NodeId, "error", err)
				})
			}
		}
		return 0, fuse.EROFS
	}
	defer p.unveil(in.NodeId)()
	return p.tree.Write(cancel, in, data)
}

func (p past) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.OK
	}
	return p.tree.Fsync(cancel, in)
}

func (p past) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.OK
	}
	return p.tree.FsyncDir(cancel, in)
}

func (p past) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.EROFS
	}
	defer p.unveil(in.NodeId)()
	return p.tree.Fallocate(cancel, in)
}

// For CopyFileRange out of the past, the kernel falls back to read and write.
func (p past) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	switch {
	case isPast(in.NodeIdOut):
		return 0, fuse.EROFS
	case isPast(in.NodeId):
		return 0, fuse.Status(syscall.EXDEV)
	}
	defer p.unveil(in.NodeIdOut)()
	return p.tree.CopyFileRange(cancel, in)
}

func (p past) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	if isPast(in.NodeId) {
		return fuse.EROFS
	}
	defer p.unveil(in.NodeId)()
	return p.tree.SetXAttr(cancel, in, name, value)
}

func (p past) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if isPast(h.NodeId) {
		return fuse.EROFS
	}
	defer p.unveil(h.NodeId)()
	return p.tree.RemoveXAttr(cancel, h, name)
}

// unveilWait is how long the first change of a start-up file waits for its
// kernel to drop its cache of the root directory.
const unveilWait = time.Second

// unveil begins a change of an inode. The root directory lists some inodes only
// after a change; then the kernel must drop its cache of the directory.
func (p past) unveil(node uint64) (changed func()) {
	if !p.ws.Unlisted(workspace.Ino(node)) {
		return func() {}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), unveilWait)
		defer cancel()
		err := p.notifier.Notify(Change{Ino: workspace.Root})
		if err == nil {
			err = p.notifier.Wait(ctx)
		}
		if err != nil {
			p.log.Warn("a kernel may not list a start-up file until it drops its cache", "node", node, "error", err)
		}
	}
}
