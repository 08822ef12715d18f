package workspace

import (
	"errors"
	"sync"
	"syscall"

	"holt/internal/store/journal"
)

// chunk is how much one record of a large write holds, bytes.
const chunk = 1 << 20

// Write writes data at off, extending the file. More than 1 MiB is written in
// pieces: an error after the first tells how much was.
func (t *Tree) Write(c Caller, ino Ino, off int64, data []byte) (int, error) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	if off > maxSize-int64(len(data)) {
		return 0, syscall.EFBIG
	}
	if len(data) <= chunk {
		return t.writeOne(c, ino, off, data)
	}
	if c.Unique != 0 {
		return 0, syscall.EINVAL // one request, one record
	}
	done := 0
	for done < len(data) {
		n, err := t.writeOne(c, ino, off+int64(done), data[done:min(len(data), done+chunk)])
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

var tables = sync.Pool{New: func() any { b := make([]byte, 0, 4*chunk/journal.BlockSize); return &b }}

// writeOne writes what one record holds.
func (t *Tree) writeOne(c Caller, ino Ino, off int64, data []byte) (int, error) {
	table := tables.Get().(*[]byte)
	defer tables.Put(table)
	*table = journal.Sum((*table)[:0], data) // the costly part, before the lock
	n, err := t.mutateBytes(c, func() (int64, error) { return t.writeLocked(c, ino, off, data, *table) })
	return int(n), err
}

// writeLocked is writeOne with mu held; sum are the checksums of data.
func (t *Tree) writeLocked(c Caller, ino Ino, off int64, data, sum []byte) (int64, error) {
	in, err := t.getFile(ino, off, off+int64(len(data)))
	if err != nil || len(data) == 0 {
		return 0, err
	}
	if err := t.compact(c, in, off, off+int64(len(data))); err != nil {
		return 0, err
	}
	o, err := t.record(opWrite, c)
	if err != nil {
		return 0, err
	}
	o.ino, o.off, o.n = ino, off, int64(len(data))
	t.killPriv(&o, in, c)
	n := o.n
	if merged := t.coalesce(in, &o, data); merged != nil {
		sum, data = journal.Sum(nil, merged), merged
	}
	if err := t.commit(&o, sum, data); err != nil {
		return 0, err
	}
	return n, nil
}

// killPriv clears set-id bits of a file that somebody but root writes.
func (t *Tree) killPriv(o *op, in *inode, c Caller) {
	if mode, changed := withoutSetID(in, c); changed && c.UID != 0 {
		o.mode, o.mask = mode, uint32(SetMode)
	}
}

// source says where the data of e's record lies.
func (e extent) source() journal.Data {
	return journal.Data{Segment: e.segment, Off: int64(e.place), Len: int(e.whole)}
}

// Read fills p from offset off and returns how much; less than len(p) only at
// the end of the file. EIO when stored bytes do not match their checksums.
func (t *Tree) Read(ino Ino, off int64, p []byte) (int, error) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	var buf [16]extent
	for try := 0; ; try++ {
		n, parts, err := t.locate(ino, off, len(p), buf[:0])
		if err != nil || n == 0 {
			return 0, err
		}
		err = t.fill(p[:n], off, parts)
		if errors.Is(err, journal.ErrGone) && try < 3 {
			continue // overwritten and collected meanwhile
		}
		if err != nil {
			t.log.Error("stored bytes cannot be read", "ino", ino, "offset", off, "bytes", n, "error", err)
			return 0, syscall.EIO
		}
		return n, nil
	}
}

// locate returns how many bytes there are to read, and the extents they are in.
func (t *Tree) locate(ino Ino, off int64, want int, parts []extent) (int, []extent, error) {
	t.mu.RLock()
	in := t.inodes.m[ino]
	if in != nil && !in.freed && in.isFile() && in.file != nil && in.file.loaded(off, min(off+int64(want), in.size)) {
		in.touch()
		n, parts := in.parts(off, want, parts)
		t.mu.RUnlock()
		return n, parts, nil
	}
	t.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.get(ino)
	if err != nil {
		return 0, nil, err
	}
	if in, err = t.getFile(ino, off, min(off+int64(want), in.size)); err != nil {
		return 0, nil, err
	}
	n, parts := in.parts(off, want, parts)
	t.inodes.tidy()
	return n, parts, nil
}

// parts returns the extents of up to want bytes from off on.
func (in *inode) parts(off int64, want int, parts []extent) (int, []extent) {
	end := min(off+int64(want), in.size)
	if end <= off {
		return 0, nil
	}
	in.file.each(off, end, func(e extent) bool {
		parts = append(parts, e.cut(off, end))
		return true
	})
	return int(end - off), parts
}

// fill reads parts into p, which begins at off, and zeroes the holes.
func (t *Tree) fill(p []byte, off int64, parts []extent) error {
	at := off
	for _, e := range parts {
		clear(p[at-off : e.off-off])
		if err := t.readData(e.source(), int(e.delta), p[e.off-off:e.end()-off]); err != nil {
			return err
		}
		at = e.end()
	}
	clear(p[at-off:])
	return nil
}

// Fallocate reserves, punches or zeroes a range. Space is not set aside: a
// reservation only sets the size.
func (t *Tree) Fallocate(c Caller, ino Ino, off, n int64, mode uint32) error {
	if off < 0 || n <= 0 {
		return syscall.EINVAL
	}
	if off > maxSize-n {
		return syscall.EFBIG
	}
	erase := mode&(FallocPunchHole|FallocZeroRange) != 0
	switch mode {
	case 0, FallocKeepSize, FallocPunchHole | FallocKeepSize, FallocZeroRange, FallocZeroRange | FallocKeepSize:
	default:
		return syscall.EOPNOTSUPP
	}
	if erase {
		if err := t.punchAhead(c, ino, off, off+n); err != nil {
			return err
		}
	}
	return t.mutate(c, func() error { return t.fallocate(c, ino, off, n, mode&FallocKeepSize != 0, erase) })
}

// fallocate is Fallocate with mu held: with erase it makes a hole, without keep the file grows to the end of the range.
func (t *Tree) fallocate(c Caller, ino Ino, off, n int64, keep, erase bool) error {
	in, err := t.getFile(ino, off, off+n)
	if err == syscall.EINVAL {
		err = syscall.ENODEV
	}
	if err != nil {
		return err
	}
	size := in.size
	if !keep {
		size = max(size, off+n)
	}
	if _, kills := withoutSetID(in, c); !erase && size == in.size && (!kills || c.UID == 0) {
		return nil // before anything is recorded, a new writer too
	}
	if erase {
		if err := t.compact(c, in, off, off+n); err != nil {
			return err
		}
	}
	o, err := t.record(opPunch, c)
	if err != nil {
		return err
	}
	o.ino, o.off, o.from = ino, off, size
	if erase {
		o.n = n
	}
	t.killPriv(&o, in, c)
	return t.commit(&o, nil, nil)
}

// CopyRange makes n bytes of dst share what src holds, and returns how many it
// did: only metadata is written.
func (t *Tree) CopyRange(c Caller, src Ino, srcOff int64, dst Ino, dstOff, n int64) (int64, error) {
	return t.copyRange(c, src, srcOff, dst, dstOff, n, nil)
}

// Overwrite gives dst the bytes and the size of src, which keeps none, and the mode and owner that set names. Nothing is
// copied, and a quota counts nothing twice. Mostly that is one step: whoever reads dst, also after a crash, sees the old or the
// new content, with its own mode and owner. It is several steps, between which dst has a part of both and no right that one of the
// modes lacks, if src has more than 1 GiB or [compactAt] extents, or dst has more than [mostRangeExtents].
func (t *Tree) Overwrite(c Caller, src, dst Ino, set SetAttrs) error {
	a, err := t.GetAttr(src)
	if err != nil {
		return err
	}
	if a.Size == 0 {
		set.Mask, set.Size = set.Mask|SetSize, 0
		_, err := t.SetAttr(c, dst, set)
		return err
	}
	if err := t.punchAhead(c, dst, a.Size, maxSize); err != nil {
		return err
	}
	for off := int64(0); off < a.Size; {
		n, err := t.copyRange(c, src, off, dst, off, a.Size-off, &set)
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EIO // it became shorter
		}
		off += n
	}
	return nil
}

// copyRange makes dst share what src holds. With take, src keeps none of it, and the last piece brings the attributes with it.
func (t *Tree) copyRange(c Caller, src Ino, srcOff int64, dst Ino, dstOff, n int64, take *SetAttrs) (int64, error) {
	if srcOff < 0 || dstOff < 0 || n < 0 {
		return 0, syscall.EINVAL
	}
	return t.mutateBytes(c, func() (int64, error) { return t.copyLocked(c, src, srcOff, dst, dstOff, n, take) })
}

// copyLocked is copyRange with mu held.
func (t *Tree) copyLocked(c Caller, src Ino, srcOff int64, dst Ino, dstOff, n int64, take *SetAttrs) (int64, error) {
	from, err := t.getFile(src, 0, 0)
	if err != nil {
		return 0, err
	}
	// One record moves a bounded piece; copy_file_range(2) may do less than asked.
	const most = 1 << 30
	n = min(n, from.size-srcOff, most)
	if n <= 0 {
		_, err := t.getFile(dst, 0, 0)
		return 0, err
	}
	if dstOff > maxSize-n {
		return 0, syscall.EFBIG
	}
	if src == dst && srcOff < dstOff+n && dstOff < srcOff+n {
		return 0, syscall.EINVAL
	}
	to, err := t.getFile(dst, 0, 0)
	if err != nil {
		return 0, err
	}
	for _, side := range []struct {
		in   *inode
		off  int64
		most int
	}{{from, srcOff, compactAt}, {to, dstOff, mostRangeExtents}} {
		end, err := t.boundedRange(side.in, side.off, side.off+n, side.most, false)
		if err != nil {
			return 0, err
		}
		n = end - side.off
	}
	if err := errors.Join(t.load(from, srcOff, srcOff+n), t.load(to, dstOff, dstOff+n)); err != nil {
		return 0, errnoOf(err)
	}
	if take != nil && srcOff+n == from.size { // what is cut off must be known
		if err := t.load(to, dstOff+n, to.size); err != nil {
			return 0, errnoOf(err)
		}
	}
	if err := t.compact(c, to, dstOff, dstOff+n); err != nil {
		return 0, err
	}
	o, err := t.record(opCopy, c)
	if err != nil {
		return 0, err
	}
	o.ino, o.off, o.other, o.from, o.n = dst, dstOff, src, srcOff, n
	t.killPriv(&o, to, c)
	if take != nil {
		set := *take
		if srcOff+n < from.size {
			set = SetAttrs{Mask: set.Mask & SetMode, Mode: set.Mode & to.mode}
		}
		o.mask |= opFlagTake | uint32(set.Mask)
		o.uid, o.gid = set.UID, set.GID
		if set.Mask&SetMode != 0 {
			o.mode = set.Mode
		}
	}
	return n, t.commit(&o, nil, nil)
}

// Fsync makes everything answered so far survive power loss: all files share
// one journal.
func (t *Tree) Fsync(ino Ino) error { return t.Sync() }

// Sync makes everything answered so far survive power loss.
func (t *Tree) Sync() error {
	if err := t.indexSync.wait(); err != nil {
		return t.errno("sync index of a new fork", err)
	}
	return t.errno("sync journal", t.journal.Sync(t.journal.End()))
}

// pebibyte is what df shows, less what is used.
const pebibyte = 1 << 50

// StatFS is what df shows.
func (t *Tree) StatFS() (StatFS, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	const block = 4096
	used := (t.count.Allocated + block - 1) / block
	return t.bounded(StatFS{BlockSize: block, Blocks: pebibyte / block, BlocksFree: pebibyte/block - min(used, pebibyte/block),
		Files: 1 << 40, FilesFree: 1<<40 - t.count.Inodes, NameMax: 255}), nil
}
