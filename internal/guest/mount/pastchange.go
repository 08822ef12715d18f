package mount

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// fixed tells whether a name cannot be given or taken: it lies in the past, or
// is the past's.
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

// Write refuses what is for the past. What comes from the kernel's page cache
// was written to a shared mapping, for which nobody is asked, and the page
// stays as it is there: the kernel is told to drop what it has of the file, and
// then reads it as it was.
func (p past) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if isPast(in.NodeId) {
		if in.WriteFlags&fuse.WRITE_CACHE != 0 {
			if err := p.notifier.Notify(Change{Ino: workspace.Ino(in.NodeId)}); err != nil {
				p.full.Do(func() { // a guest may ask without end
					p.log.Warn("a kernel may show what was written to its copy of a checkpoint", "node", in.NodeId, "error", err)
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

// CopyFileRange out of the past is read and written by the kernel, then.
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

// unveilWait is how long the first change of a start-up file waits until its kernel has
// dropped what it has read of the top.
const unveilWait = time.Second

// unveil begins a change of an inode. One that the top does not list until it is changed
// is listed then, and the kernel has to be told: it keeps what it has read of the top.
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
			p.log.Warn("a kernel may not list a start-up file yet", "node", node, "error", err)
		}
	}
}
