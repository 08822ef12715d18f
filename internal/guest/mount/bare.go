package mount

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Bare mounts an empty in-memory file system on dir, which ends with the mount:
// the same server and options as a workspace's, with almost nothing behind it.
// It is the baseline for measuring workspaces. Only the bench and tests use it;
// it is in this package because only this package imports go-fuse.
func Bare(ctx context.Context, dir string, log *slog.Logger) (*HostMount, error) {
	dir, err := mountDir(dir)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &bare{RawFileSystem: fuse.NewDefaultRawFileSystem(), nodes: make(map[uint64]*bareNode), last: 1}
	b.nodes[1] = &bareNode{ino: 1, nlink: 2, mode: syscall.S_IFDIR | 0o777, entries: make(map[string]*bareEntry), time: time.Now()}
	m, err := mountHost(ctx, b, dir, HostOptions{Log: log})
	if err != nil {
		return nil, err
	}
	go m.run(nil, &Notifier{}, func() error { return nil })
	return m, nil
}

// bare is a file system with one lock. Directories are read completely at the
// first READDIR, in order of creation.
type bare struct {
	fuse.RawFileSystem

	mu    sync.RWMutex
	nodes map[uint64]*bareNode
	last  uint64
}

type bareNode struct {
	ino      uint64
	mode     uint32
	uid, gid uint32
	nlink    uint32
	lookups  uint64
	size     int64
	time     time.Time
	target   string
	pages    [][]byte // of barePage bytes; the first may be shorter
	entries  map[string]*bareEntry
	order    []*bareEntry // in order of creation; nil for removed ones
}

type bareEntry struct {
	*bareNode
	name string
	at   int // index in the directory's order
}

const barePage = 1 << 20

func (b *bare) String() string { return "bare" }

func (b *bare) attr(out *fuse.Attr, n *bareNode) {
	out.Ino, out.Mode, out.Nlink, out.Uid, out.Gid = n.ino, n.mode, n.nlink, n.uid, n.gid
	out.Size, out.Blocks, out.Blksize = uint64(n.size), uint64(n.size+511)/512, blockSize
	out.SetTimes(&n.time, &n.time, &n.time)
}

func (b *bare) entry(out *fuse.EntryOut, n *bareNode) fuse.Status {
	n.lookups++
	out.NodeId, out.EntryValid, out.AttrValid = n.ino, forever, forever
	b.attr(&out.Attr, n)
	return fuse.OK
}

func (b *bare) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.nodes[h.NodeId].entries[name]; e != nil {
		return b.entry(out, e.bareNode)
	}
	out.EntryValid = forever
	return fuse.OK
}

func (b *bare) Forget(ino, lookups uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[ino]
	if n == nil {
		return
	}
	n.lookups -= min(lookups, n.lookups)
	if n.lookups == 0 && n.nlink == 0 {
		delete(b.nodes, ino)
	}
}

func (b *bare) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	b.mu.RLock()
	defer b.mu.RUnlock()
	n := b.nodes[in.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	out.AttrValid = forever
	b.attr(&out.Attr, n)
	return fuse.OK
}

func (b *bare) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[in.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&syscall.S_IFMT | mode
	}
	if uid, ok := in.GetUID(); ok {
		n.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.gid = gid
	}
	if t, ok := in.GetMTime(); ok {
		n.time = t
	}
	if size, ok := in.GetSize(); ok {
		b.truncate(n, int64(size))
	}
	out.AttrValid = forever
	b.attr(&out.Attr, n)
	return fuse.OK
}

func (b *bare) truncate(n *bareNode, size int64) {
	if size < n.size {
		keep := int((size + barePage - 1) / barePage)
		if keep < len(n.pages) {
			clear(n.pages[keep:])
			n.pages = n.pages[:keep]
		}
		if at := size % barePage; at != 0 && keep == len(n.pages) && at < int64(len(n.pages[keep-1])) {
			clear(n.pages[keep-1][at:])
		}
	}
	n.size = size
}

// make adds a node. The lock is held.
func (b *bare) make(h *fuse.InHeader, name string, mode uint32, out *fuse.EntryOut) (*bareNode, fuse.Status) {
	dir := b.nodes[h.NodeId]
	if dir.entries[name] != nil {
		return nil, fuse.Status(syscall.EEXIST)
	}
	b.last++
	n := &bareNode{ino: b.last, mode: mode, uid: h.Uid, gid: h.Gid, nlink: 1, time: time.Now()}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n.nlink, n.entries = 2, make(map[string]*bareEntry)
		dir.nlink++
	}
	b.nodes[n.ino] = n
	b.link(dir, name, n)
	return n, b.entry(out, n)
}

func (b *bare) link(dir *bareNode, name string, n *bareNode) {
	e := &bareEntry{bareNode: n, name: name, at: len(dir.order)}
	dir.entries[name] = e
	dir.order = append(dir.order, e)
	dir.time = n.time
}

func (b *bare) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	_, status := b.make(&in.InHeader, name, syscall.S_IFREG|in.Mode&0o7777&^in.Umask, &out.EntryOut)
	return status
}

func (b *bare) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, status := b.make(&in.InHeader, name, in.Mode&^in.Umask, out)
	return status
}

func (b *bare) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, status := b.make(&in.InHeader, name, syscall.S_IFDIR|in.Mode&0o7777&^in.Umask, out)
	return status
}

func (b *bare) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, status := b.make(h, name, syscall.S_IFLNK|0o777, out)
	if n != nil {
		n.target, n.size = target, int64(len(target))
		b.attr(&out.Attr, n)
	}
	return status
}

func (b *bare) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return []byte(b.nodes[h.NodeId].target), fuse.OK
}

func (b *bare) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir, n := b.nodes[in.NodeId], b.nodes[in.Oldnodeid]
	if dir.entries[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	n.nlink++
	b.link(dir, name, n)
	return b.entry(out, n)
}

// unlink removes a name from its directory. The lock is held.
func (b *bare) unlink(dir *bareNode, e *bareEntry) {
	delete(dir.entries, e.name)
	dir.order[e.at] = nil
	if len(dir.entries) == 0 {
		dir.order = nil
	}
}

// drop removes a name and its node. The lock is held.
func (b *bare) drop(dir *bareNode, e *bareEntry) {
	b.unlink(dir, e)
	n := e.bareNode
	if n.entries != nil {
		n.nlink, dir.nlink = 0, dir.nlink-1
	} else {
		n.nlink--
	}
	if n.nlink == 0 && n.lookups == 0 {
		delete(b.nodes, n.ino)
	}
}

func (b *bare) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := b.nodes[h.NodeId]
	e := dir.entries[name]
	if e == nil {
		return fuse.ENOENT
	}
	if len(e.entries) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	b.drop(dir, e)
	return fuse.OK
}

func (b *bare) Rmdir(c <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return b.Unlink(c, h, name)
}

func (b *bare) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in.Flags != 0 {
		return fuse.EINVAL
	}
	src, dst := b.nodes[in.NodeId], b.nodes[in.Newdir]
	e := src.entries[from]
	if e == nil {
		return fuse.ENOENT
	}
	if old := dst.entries[to]; old != nil {
		if old.bareNode == e.bareNode {
			return fuse.OK
		}
		if len(old.entries) > 0 {
			return fuse.Status(syscall.ENOTEMPTY)
		}
		b.drop(dst, old)
	}
	b.unlink(src, e)
	b.link(dst, to, e.bareNode)
	if e.entries != nil {
		src.nlink, dst.nlink = src.nlink-1, dst.nlink+1
	}
	return fuse.OK
}

func (b *bare) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status    { return fuse.ENOSYS }
func (b *bare) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }
func (b *bare) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status                 { return fuse.ENOSYS }
func (b *bare) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status                 { return fuse.OK }
func (b *bare) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status              { return fuse.OK }

func (b *bare) GetXAttr(<-chan struct{}, *fuse.InHeader, string, []byte) (uint32, fuse.Status) {
	return 0, fuse.ENODATA
}

func (b *bare) ListXAttr(<-chan struct{}, *fuse.InHeader, []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

func (b *bare) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	n, off := b.nodes[in.NodeId], int64(in.Offset)
	buf = buf[:max(0, min(int64(len(buf)), n.size-off))]
	for rest := buf; len(rest) > 0; {
		piece := rest[:min(int64(len(rest)), barePage-off%barePage)]
		have := 0
		if i := int(off / barePage); i < len(n.pages) && int(off%barePage) < len(n.pages[i]) {
			have = copy(piece, n.pages[i][off%barePage:])
		}
		clear(piece[have:])
		rest, off = rest[len(piece):], off+int64(len(piece))
	}
	return inPlace(buf), fuse.OK
}

func (b *bare) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, off := b.nodes[in.NodeId], int64(in.Offset)
	for rest := data; len(rest) > 0; {
		i, at := int(off/barePage), int(off%barePage)
		for len(n.pages) <= i {
			n.pages = append(n.pages, nil)
		}
		piece := rest[:min(len(rest), barePage-at)]
		if end := at + len(piece); end > len(n.pages[i]) {
			if end > cap(n.pages[i]) {
				grown := make([]byte, end, min(barePage, max(end, 2*cap(n.pages[i]))))
				copy(grown, n.pages[i])
				n.pages[i] = grown
			}
			n.pages[i] = n.pages[i][:end]
		}
		copy(n.pages[i][at:], piece)
		rest, off = rest[len(piece):], off+int64(len(piece))
	}
	n.size, n.time = max(n.size, off), time.Now()
	return uint32(len(data)), fuse.OK
}

func (b *bare) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.list(in, func(name string, n *bareNode, next uint64) bool {
		return out.AddDirEntry(fuse.DirEntry{Name: name, Mode: n.mode, Ino: n.ino, Off: next})
	})
	return fuse.OK
}

func (b *bare) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list(in, func(name string, n *bareNode, next uint64) bool {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: name, Mode: n.mode, Ino: n.ino, Off: next})
		if entry != nil {
			b.entry(entry, n)
		}
		return entry != nil
	})
	return fuse.OK
}

// list calls add for the entries from the offset in in.
func (b *bare) list(in *fuse.ReadIn, add func(string, *bareNode, uint64) bool) {
	dir := b.nodes[in.NodeId]
	for at := in.Offset; at < uint64(len(dir.order)); at++ {
		if e := dir.order[at]; e != nil && !add(e.name, e.bareNode, at+1) {
			return
		}
	}
}

func (b *bare) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Blocks: 1 << 38, Bfree: 1 << 38, Bavail: 1 << 38, Files: math.MaxUint32, Ffree: math.MaxUint32, Bsize: 4096, Frsize: 4096, NameLen: maxName}
	return fuse.OK
}
