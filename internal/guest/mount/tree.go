package mount

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// forever is how long a kernel may cache names and attributes, seconds: until it is notified.
const forever = 1 << 32

// blockSize is the preferred size of a transfer, st_blksize. Buffered files in
// C and Python use it, and the cost of a request is much higher than that of
// its bytes.
const blockSize = 64 << 10

// tree converts FUSE requests to calls of a [workspace.Tree] and the results to
// replies. Node ids are inode numbers and there are no handles, so that any other
// tree of the same workspace can continue where this one stopped.
//
// It has no lock and no state, except for log lines that are written once.
type tree struct {
	fuse.RawFileSystem // answers ENOSYS to other requests

	ws       *workspace.Tree
	epoch    workspace.Epoch
	identity bool   // requests may be repeated: pass their unique to the workspace
	valid    uint64 // how long the kernel may keep entries and attributes, seconds
	readOnly bool
	// longXattr: SETXATTR has a second word of flags.
	longXattr bool
	log       *slog.Logger
	full      sync.Once // logs once that the notifier's queue is full

	// notifier tells the kernel what to drop from its caches.
	notifier *Notifier

	// writers has the writer of a request's changes, by the slot in the padding of
	// its header; a kernel leaves that zero.
	writers []workspace.Writer
	// times has the guest's time of the request, by the same slot; nil on the host,
	// where workspace and kernel have the same clock.
	times []int64
}

func (t *tree) String() string { return "holt" }

// caller returns the caller of a request.
func (t *tree) caller(h *fuse.InHeader) workspace.Caller {
	c := workspace.Caller{Epoch: t.epoch, UID: h.Uid, GID: h.Gid, PID: h.Pid}
	if t.identity {
		c.Unique = h.Unique
	}
	if int(h.Padding) < len(t.writers) {
		c.Writer = t.writers[h.Padding]
	}
	if int(h.Padding) < len(t.times) {
		c.Time = t.times[h.Padding]
	}
	return c
}

// making is caller for a request that creates a file. The kernel leaves the
// umask to the file system (FUSE_DONT_MASK), because a default ACL replaces it.
func (t *tree) making(h *fuse.InHeader, umask uint32) workspace.Caller {
	c := t.caller(h)
	c.Umask = umask
	return c
}

// anonymous is caller without a request identity, for the second call of a
// request: a repeat gets the answer of the first.
func (t *tree) anonymous(h *fuse.InHeader) workspace.Caller {
	c := t.caller(h)
	c.Unique = 0
	return c
}

// status returns the errno of an error of the workspace.
func (t *tree) status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	if errno, ok := err.(syscall.Errno); ok {
		return fuse.Status(errno)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fuse.Status(errno)
	}
	t.log.Error("workspace operation failed without an errno", "err", err)
	return fuse.EIO
}

// seconds splits nanoseconds since 1970 for the protocol: the nanoseconds are
// never negative, the seconds may be.
func seconds(ns int64) (sec uint64, nsec uint32) {
	s, n := ns/1e9, ns%1e9
	if n < 0 {
		s, n = s-1, n+1e9
	}
	return uint64(s), uint32(n)
}

// nanoseconds is the inverse of seconds, limited to the range of int64 (the years 1678 to 2262).
func nanoseconds(sec uint64, nsec uint32) int64 {
	const least, most = -9223372036, 9223372035
	return max(least, min(most, int64(sec)))*1e9 + int64(nsec)
}

func fillAttr(out *fuse.Attr, a *workspace.Attr) {
	out.Ino = uint64(a.Ino)
	out.Size = uint64(a.Size)
	out.Blocks = uint64(a.Blocks)
	out.Atime, out.Atimensec = seconds(a.Atime)
	out.Mtime, out.Mtimensec = seconds(a.Mtime)
	out.Ctime, out.Ctimensec = seconds(a.Ctime)
	out.Mode = a.Mode
	out.Nlink = a.Nlink
	out.Uid = a.UID
	out.Gid = a.GID
	out.Rdev = a.Rdev
	out.Blksize = blockSize
}

func (t *tree) fillEntry(out *fuse.EntryOut, a *workspace.Attr) {
	out.NodeId = uint64(a.Ino)
	out.EntryValid = t.valid
	out.AttrValid = t.valid
	fillAttr(&out.Attr, a)
}

// entry completes an operation that found or created a file.
func (t *tree) entry(out *fuse.EntryOut, a workspace.Attr, err error) fuse.Status {
	if err != nil {
		return t.status(err)
	}
	t.fillEntry(out, &a)
	return fuse.OK
}

// Lookup answers a missing name with node 0, which the kernel may cache as absent.
func (t *tree) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	a, err := t.ws.Lookup(t.caller(h), workspace.Ino(h.NodeId), name)
	if err == syscall.ENOENT && t.valid > 0 {
		out.EntryValid = t.valid
		return fuse.OK
	}
	return t.entry(out, a, err)
}

func (t *tree) Forget(node, lookups uint64) {
	if node > maxNode {
		return // pollNode
	}
	t.ws.Forget(workspace.Caller{Epoch: t.epoch}, workspace.Ino(node), lookups)
}

func (t *tree) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	a, err := t.ws.GetAttr(workspace.Ino(in.NodeId))
	if err != nil {
		return t.status(err)
	}
	out.AttrValid = t.valid
	fillAttr(&out.Attr, &a)
	return fuse.OK
}

// statxMask has the fields that Statx fills: STATX_BASIC_STATS and STATX_BTIME.
const statxMask = 0x7ff | 0x800

func (t *tree) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	a, err := t.ws.GetAttr(workspace.Ino(in.NodeId))
	if err != nil {
		return t.status(err)
	}
	out.AttrValid = t.valid
	fillStatx(out, &a)
	return fuse.OK
}

func fillStatx(out *fuse.StatxOut, a *workspace.Attr) {
	out.Mask = statxMask
	out.Ino, out.Size, out.Blocks = uint64(a.Ino), uint64(a.Size), uint64(a.Blocks)
	out.Mode, out.Nlink, out.Uid, out.Gid = uint16(a.Mode), a.Nlink, a.UID, a.GID
	out.Blksize = blockSize
	out.RdevMajor, out.RdevMinor = a.Rdev>>8&0xfff, a.Rdev&0xff|a.Rdev>>12&0xfff00
	out.Atime.Sec, out.Atime.Nsec = seconds(a.Atime)
	out.Mtime.Sec, out.Mtime.Nsec = seconds(a.Mtime)
	out.Ctime.Sec, out.Ctime.Nsec = seconds(a.Ctime)
	out.Btime.Sec, out.Btime.Nsec = seconds(a.Btime)
}

func (t *tree) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	set := workspace.SetAttrs{
		Mode:  in.Mode & 0o7777,
		UID:   in.Uid,
		GID:   in.Gid,
		Size:  int64(in.Size),
		Atime: nanoseconds(in.Atime, in.Atimensec),
		Mtime: nanoseconds(in.Mtime, in.Mtimensec),
		Ctime: nanoseconds(in.Ctime, in.Ctimensec),
	}
	for _, bit := range [...]struct {
		fattr uint32
		mask  workspace.SetMask
	}{
		{fuse.FATTR_MODE, workspace.SetMode},
		{fuse.FATTR_UID, workspace.SetUID},
		{fuse.FATTR_GID, workspace.SetGID},
		{fuse.FATTR_SIZE, workspace.SetSize},
		{fuse.FATTR_ATIME, workspace.SetAtime},
		{fuse.FATTR_MTIME, workspace.SetMtime},
		{fuse.FATTR_ATIME_NOW, workspace.SetAtimeNow},
		{fuse.FATTR_MTIME_NOW, workspace.SetMtimeNow},
		{fuse.FATTR_CTIME, workspace.SetCtime},
		{fuse.FATTR_KILL_SUIDGID, workspace.SetKillPriv},
	} {
		if in.Valid&bit.fattr != 0 {
			set.Mask |= bit.mask
		}
	}
	c := t.caller(&in.InHeader)
	if in.Valid&^(fuse.FATTR_FH|fuse.FATTR_LOCKOWNER) == 0 && c.UID != 0 {
		// With KILLPRIV_V2 a kernel requests the clearing of set-id bits in this way,
		// for chown(-1, -1) or before an fallocate.
		set.Mask = workspace.SetKillPriv
	}
	a, err := t.ws.SetAttr(c, workspace.Ino(in.NodeId), set)
	if err != nil {
		return t.status(err)
	}
	out.AttrValid = t.valid
	fillAttr(&out.Attr, &a)
	return fuse.OK
}

func (t *tree) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s, err := t.ws.StatFS()
	if err != nil {
		return t.status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: s.Blocks, Bfree: s.BlocksFree, Bavail: s.BlocksFree,
		Files: s.Files, Ffree: s.FilesFree,
		Bsize: s.BlockSize, Frsize: s.BlockSize, NameLen: s.NameMax,
	}
	return fuse.OK
}

// Ioctl supports none. Python asks for each file it opens whether it is a
// terminal, so the answer is quick.
func (t *tree) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}
