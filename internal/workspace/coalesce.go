package workspace

import "holt/internal/store/journal"

// What a log that grows by lines costs is bounded by gathering: when gatherRun
// extents in a row are smaller than gatherSmall, the next append takes them
// along in its record. Each byte is so written at most about twice more.
const (
	coalesceRun   = 32
	coalesceSmall = 4096
)

// coalesce returns the bytes of the small extents that end at o.off followed by
// data, and moves o.off to where they begin; nil if there is nothing to gain.
func (t *Tree) coalesce(in *inode, o *op, data []byte) []byte {
	if o.off != in.size || len(data) >= coalesceSmall {
		return nil
	}
	i, ok := in.file.find((o.off - 1) / windowSize)
	if !ok || o.off == 0 || o.off%windowSize == 0 {
		return nil
	}
	tail := in.file.windows[i].extents
	from, n := o.off, 0
	for k := len(tail) - 1; k >= 0 && tail[k].end() == from && tail[k].n < coalesceSmall && n < 2*coalesceRun; k-- {
		from, n = tail[k].off, n+1
	}
	if n < coalesceRun {
		return nil
	}
	tail = tail[len(tail)-n:]
	merged := make([]byte, 0, int(o.off-from)+len(data))
	for _, e := range tail {
		at := len(merged)
		merged = merged[:at+int(e.n)]
		if err := t.readData(e.source(), int(e.delta), merged[at:]); err != nil {
			return nil // a read of it will say why
		}
	}
	o.off = from
	return append(merged, data...)
}

// compactAt is how many extents a block of 1 MiB (chunk) of a file may hold before
// its next change, and the most that one copy brings: so a block never holds
// more than twice as many and a few, and a window eight times that, whatever a
// program does with single bytes. Programs that write pages of 4 KiB never get
// there.
const compactAt = 1024

// mostBlockExtents is how many a block may hold where a quota or a full disk has no room
// for the zeros between them: then a change of a part of it fails.
const mostBlockExtents = 4 * compactAt

// compact makes one extent of each crowded block in which lo..hi begins or
// ends; what lies between is about to be replaced. A change of the file by c
// must follow, since the file's times move. Holes between the extents become
// zeros. What cannot be read or written stays as it is, up to mostCrowd.
func (t *Tree) compact(c Caller, in *inode, lo, hi int64) error {
	err := t.compactBlock(c, in, lo/chunk, lo, hi)
	if last := (hi - 1) / chunk; err == nil && last > lo/chunk {
		err = t.compactBlock(c, in, last, lo, hi)
	}
	return err
}

func (t *Tree) compactBlock(c Caller, in *inode, number, from, to int64) error {
	lo, hi := number*chunk, (number+1)*chunk
	var parts []extent
	in.file.each(lo, hi, func(e extent) bool {
		parts = append(parts, e.cut(lo, hi))
		return true
	})
	if len(parts) < compactAt || from <= parts[0].off && parts[len(parts)-1].end() <= to {
		return nil
	}
	if err := t.rewriteBlock(c, in, parts); err != nil && len(parts) >= mostBlockExtents {
		return t.errno("gather the pieces of a file", err)
	}
	return nil
}

// rewriteBlock writes extents of one block, and the holes between them, again.
func (t *Tree) rewriteBlock(c Caller, in *inode, parts []extent) error {
	lo, hi := parts[0].off, parts[len(parts)-1].end()
	whole := make([]byte, hi-lo)
	o := op{kind: opWrite, ino: in.ino, off: lo, n: hi - lo}
	if err := t.overQuota(&o, whole); err != nil {
		return err // before anything is read
	}
	if err := t.fill(whole, lo, parts); err != nil {
		return err
	}
	var err error
	if o, err = t.record(opWrite, Caller{Writer: c.Writer, Time: c.Time}); err != nil {
		return err
	}
	o.ino, o.off, o.n = in.ino, lo, hi-lo
	return t.commit(&o, journal.Sum(nil, whole), whole)
}
