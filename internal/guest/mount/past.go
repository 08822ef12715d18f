package mount

import (
	_ "embed" // for README.md
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// Mounts show the checkpoints of a workspace as .holt/checkpoints/NAME, which
// can be opened but is not listed, and .holt/README.md, which describes this
// file system. A node id encodes its meaning, so that no state is kept and
// another daemon can continue: a bit that no inode number has, the checkpoint's
// number, the inode's number.
const (
	pastBit    = 1 << 62
	pastInode  = 38 // bits
	mostPast   = 1<<pastInode - 1
	mostNumber = 1<<(62-pastInode) - 1

	holtNode        = pastBit | 1 // .holt: no checkpoint has the number 0
	checkpointsNode = pastBit | 2 // .holt/checkpoints
	readmeNode      = pastBit | 3 // .holt/README.md

	holtName        = ".holt"
	checkpointsName = "checkpoints"
	readmeName      = "README.md"
)

//go:embed README.md
var readme []byte

// pastValid is how long a kernel may cache answers about checkpoints, seconds:
// they never change, but may be deleted.
const pastValid = 1

// pastNode returns the node of an inode at a checkpoint. It returns EOVERFLOW
// for numbers that do not fit: 16 million checkpoints, 274,000 million inodes.
func pastNode(c workspace.CheckpointID, ino workspace.Ino) (uint64, error) {
	if c > mostNumber || ino > mostPast {
		return 0, syscall.EOVERFLOW
	}
	return pastBit | uint64(c)<<pastInode | uint64(ino), nil
}

func isPast(node uint64) bool { return node&pastBit != 0 && node != pollNode }

// isFixed reports whether a node of the past is not backed by an inode.
func isFixed(node uint64) bool { return node >= holtNode && node <= readmeNode }

func cutPast(node uint64) (workspace.CheckpointID, workspace.Ino) {
	node &^= pastBit
	return workspace.CheckpointID(node >> pastInode), workspace.Ino(node & mostPast)
}

// past is a tree with its checkpoints. It answers requests for nodes of the
// past, which are read-only; the tree answers the others.
type past struct{ *tree }

// view returns the view and inode of a node of the past.
func (p past) view(node uint64) (*workspace.View, workspace.Ino, error) {
	c, ino := cutPast(node)
	v, err := p.ws.View(c)
	return v, ino, err
}

func (p past) valid(node uint64) uint64 {
	if node == checkpointsNode || p.tree.valid == 0 {
		return 0 // its entries change
	}
	return pastValid
}

// attr returns the attributes of a node of the past.
func (p past) attr(node uint64) (workspace.Attr, error) {
	if isFixed(node) {
		return p.fixedAttr(node)
	}
	v, ino, err := p.view(node)
	if err != nil {
		return workspace.Attr{}, err
	}
	a, err := v.GetAttr(ino)
	a.Ino = workspace.Ino(node)
	return a, err
}

// fixedAttr returns the attributes of a node without an inode. The time of
// .holt/checkpoints changes with the set of checkpoints, so that kernels know
// when their cache is stale.
func (p past) fixedAttr(node uint64) (workspace.Attr, error) {
	root, err := p.ws.GetAttr(workspace.Root)
	a := workspace.Attr{Ino: workspace.Ino(node), Mode: syscall.S_IFDIR | 0o555, UID: root.UID, GID: root.GID, Nlink: 2,
		Atime: root.Btime, Mtime: root.Btime, Ctime: root.Btime, Btime: root.Btime}
	switch node {
	case readmeNode:
		a.Mode, a.Nlink, a.Size, a.Blocks = syscall.S_IFREG|0o444, 1, int64(len(readme)), int64(len(readme)+511)/512
	case checkpointsNode:
		if taken, n := p.ws.NewestCheckpoint(); n > 0 {
			a.Mtime = taken.UnixNano() + int64(n)
			a.Ctime, a.Size = a.Mtime, int64(n)
		}
	}
	return a, err
}

// found completes a lookup.
func (p past) found(out *fuse.EntryOut, node uint64, err error) fuse.Status {
	var a workspace.Attr
	if err == nil {
		a, err = p.attr(node)
	}
	if err != nil {
		return p.status(err)
	}
	fillAttr(&out.Attr, &a)
	out.NodeId, out.EntryValid, out.AttrValid = node, p.valid(node), p.valid(node)
	return fuse.OK
}

// holds reports whether a name in the root belongs to the past: the workspace has no such entry.
func (p past) holds(node uint64, name string) bool {
	if node != uint64(workspace.Root) || name != holtName {
		return false
	}
	_, err := p.ws.Lookup(workspace.Caller{}, workspace.Root, holtName)
	return err == syscall.ENOENT
}

func (p past) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	switch {
	case p.holds(h.NodeId, name):
		return p.found(out, holtNode, nil)
	case !isPast(h.NodeId):
		return p.tree.Lookup(cancel, h, name, out)
	case name == "." && h.NodeId != holtNode && h.NodeId != checkpointsNode:
		return p.found(out, h.NodeId, nil)
	case name == "." || name == "..":
		return fuse.Status(syscall.ESTALE) // kernels cannot open an unlisted directory by its handle
	case h.NodeId == holtNode && name == checkpointsName:
		return p.found(out, checkpointsNode, nil)
	case h.NodeId == holtNode && name == readmeName:
		return p.found(out, readmeNode, nil)
	case h.NodeId == checkpointsNode:
		if c, ok := p.ws.CheckpointNamed(name); ok {
			node, err := pastNode(c, workspace.Root)
			status := p.found(out, node, err)
			out.EntryValid = 0
			return status
		}
	case h.NodeId != holtNode:
		v, dir, err := p.view(h.NodeId)
		if err != nil {
			return p.status(err)
		}
		a, err := v.Lookup(dir, name)
		if err != nil {
			return p.status(err)
		}
		node, err := pastNode(v.Checkpoint().ID, a.Ino)
		return p.found(out, node, err)
	}
	return fuse.ENOENT
}

// Forget does nothing: nodes of the past have no state.
func (p past) Forget(node, lookups uint64) {
	if !isPast(node) {
		p.tree.Forget(node, lookups)
	}
}

func (p past) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if !isPast(in.NodeId) {
		return p.tree.GetAttr(cancel, in, out)
	}
	a, err := p.attr(in.NodeId)
	if err != nil {
		return p.status(err)
	}
	out.AttrValid = p.valid(in.NodeId)
	fillAttr(&out.Attr, &a)
	return fuse.OK
}

func (p past) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	if !isPast(in.NodeId) {
		return p.tree.Statx(cancel, in, out)
	}
	a, err := p.attr(in.NodeId)
	if err != nil {
		return p.status(err)
	}
	out.AttrValid = p.valid(in.NodeId)
	fillStatx(out, &a)
	return fuse.OK
}

func (p past) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	if !isPast(h.NodeId) {
		return p.tree.Readlink(cancel, h)
	}
	v, ino, err := p.view(h.NodeId)
	if err != nil {
		return nil, p.status(err)
	}
	target, err := v.Readlink(ino)
	return []byte(target), p.status(err)
}

func (p past) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if !isPast(in.NodeId) {
		return p.tree.Read(cancel, in, buf)
	}
	if in.NodeId == readmeNode {
		return inPlace(buf[:copy(buf, readme[min(in.Offset, uint64(len(readme))):])]), fuse.OK
	}
	v, ino, err := p.view(in.NodeId)
	if err != nil {
		return nil, p.status(err)
	}
	n, err := v.Read(ino, int64(in.Offset), buf)
	return inPlace(buf[:n]), p.status(err)
}

func (p past) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	if !isPast(in.NodeId) {
		return p.tree.Lseek(cancel, in, out)
	}
	if in.NodeId == readmeNode {
		return fuse.ENOSYS // the kernel then treats all of it as data
	}
	v, ino, err := p.view(in.NodeId)
	if err != nil {
		return p.status(err)
	}
	a, err := v.GetAttr(ino)
	if err != nil {
		return p.status(err)
	}
	off, err := seekBlocks(func(off int64, whence uint32) (int64, error) { return v.Lseek(ino, off, whence) }, a.Size, int64(in.Offset), in.Whence)
	out.Offset = uint64(off)
	return p.status(err)
}

// entries calls fn with the entries of a directory of the past after an offset.
func (p past) entries(node, offset uint64, plus bool, fn func(fuse.DirEntry, workspace.Attr) bool) error {
	switch node {
	case holtNode:
		for i, e := range []fuse.DirEntry{
			{Name: checkpointsName, Mode: syscall.S_IFDIR, Ino: checkpointsNode, Off: 1},
			{Name: readmeName, Mode: syscall.S_IFREG, Ino: readmeNode, Off: 2},
		} {
			if uint64(i) < offset {
				continue
			}
			a, err := p.attr(e.Ino)
			if err != nil || !fn(e, a) {
				return err
			}
		}
		return nil
	case checkpointsNode:
		return p.names(offset, fn)
	}
	v, ino, err := p.view(node)
	if err != nil {
		return err
	}
	var failed error
	err = v.ReadDir(ino, offset, plus, func(e workspace.DirEntry) bool {
		at, err := pastNode(v.Checkpoint().ID, e.Ino)
		if err != nil {
			failed = err
			return false
		}
		e.Attr.Ino = workspace.Ino(at)
		return fn(fuse.DirEntry{Name: e.Name, Mode: e.Mode, Ino: at, Off: e.Cookie}, e.Attr)
	})
	if failed != nil {
		err = failed
	}
	return err
}

// names lists the checkpoints after an offset, which is a checkpoint's number.
func (p past) names(offset uint64, fn func(fuse.DirEntry, workspace.Attr) bool) error {
	for _, c := range p.ws.Checkpoints() {
		if uint64(c.ID) <= offset {
			continue
		}
		node, err := pastNode(c.ID, workspace.Root)
		if err != nil {
			return err
		}
		a, err := p.attr(node)
		if err == syscall.ESTALE { // deleted in the meantime
			continue
		}
		if err != nil {
			return err
		}
		if !fn(fuse.DirEntry{Name: c.Name, Mode: syscall.S_IFDIR, Ino: node, Off: uint64(c.ID)}, a) {
			return nil
		}
	}
	return nil
}

func (p past) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if !isPast(in.NodeId) {
		return p.tree.ReadDir(cancel, in, out)
	}
	return p.status(p.entries(in.NodeId, in.Offset, false, func(e fuse.DirEntry, _ workspace.Attr) bool { return out.AddDirEntry(e) }))
}

func (p past) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if !isPast(in.NodeId) {
		return p.tree.ReadDirPlus(cancel, in, out)
	}
	return p.status(p.entries(in.NodeId, in.Offset, true, func(e fuse.DirEntry, a workspace.Attr) bool {
		entry := out.AddDirLookupEntry(e)
		if entry == nil {
			return false
		}
		if e.Name != "." && e.Name != ".." {
			fillAttr(&entry.Attr, &a)
			entry.NodeId, entry.EntryValid, entry.AttrValid = e.Ino, p.valid(in.NodeId), p.valid(e.Ino)
		}
		return true
	}))
}

func (p past) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	switch {
	case !isPast(h.NodeId):
		return p.tree.GetXAttr(cancel, h, name, dest)
	case !served(name):
		return 0, fuse.ENOTSUP
	case isFixed(h.NodeId):
		return 0, fuse.ENODATA
	}
	v, ino, err := p.view(h.NodeId)
	if err != nil {
		return 0, p.status(err)
	}
	value, err := v.GetXattr(ino, name)
	if err != nil {
		return 0, p.status(err)
	}
	return fit(dest, string(value))
}

func (p past) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	switch {
	case !isPast(h.NodeId):
		return p.tree.ListXAttr(cancel, h, dest)
	case isFixed(h.NodeId):
		return 0, fuse.OK
	}
	v, ino, err := p.view(h.NodeId)
	if err != nil {
		return 0, p.status(err)
	}
	names, err := v.ListXattr(ino)
	if err != nil {
		return 0, p.status(err)
	}
	return fitNames(dest, names)
}

var _ fuse.RawFileSystem = past{}
