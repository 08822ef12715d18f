package workspace

import "syscall"

// mostRangeExtents is how many extents one record may take out or copy, and one
// Lseek may look at: mu is held all the while.
const mostRangeExtents = 10_000

// Lseek finds data or a hole at or after off. ENXIO past the end. Holes that
// come after very many extents are not looked for: the end counts as the next.
func (t *Tree) Lseek(ino Ino, off int64, whence uint32) (int64, error) {
	if whence != SeekData && whence != SeekHole {
		return 0, syscall.EINVAL
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.getFile(ino, 0, 0)
	if err != nil {
		return 0, err
	}
	if off < 0 || off >= in.size {
		return 0, syscall.ENXIO
	}
	defer t.inodes.tidy()
	if whence == SeekHole {
		return t.seekHole(in, off)
	}
	for number := off / windowSize; ; {
		w, err := t.nextWindow(in, number)
		if err != nil {
			return 0, err
		}
		if w == nil {
			return 0, syscall.ENXIO
		}
		if k := w.first(off); k < len(w.extents) {
			return max(off, w.extents[k].off), nil
		}
		number = w.number + 1
	}
}

func (t *Tree) seekHole(in *inode, off int64) (int64, error) {
	for looked := 0; looked < mostRangeExtents && off < in.size; {
		if err := t.load(in, off, off+1); err != nil {
			return 0, err
		}
		at := off
		in.file.each(off, (off/windowSize+1)*windowSize, func(e extent) bool {
			if e.off > at {
				return false
			}
			at = e.end()
			looked++
			return true
		})
		if at%windowSize != 0 || at == off {
			return min(at, in.size), nil
		}
		off = at
	}
	return in.size, nil
}

// nextWindow returns the first window from number on that has extents,
// loaded; nil if there is none.
func (t *Tree) nextWindow(in *inode, number int64) (*window, error) {
	f := in.file
	i, _ := f.find(number)
	for i < len(f.windows) && len(f.windows[i].extents) == 0 {
		i++
	}
	// What is loaded counts, whatever the index says of it.
	for at := number; !f.complete; at++ {
		off, ok, err := t.index.nthExtent(in.ino, at*windowSize, maxSize, 0, false)
		if err != nil {
			return nil, t.errno("read extents", err)
		}
		at = off / windowSize
		if !ok || i < len(f.windows) && f.windows[i].number <= at {
			break
		}
		if _, loaded := f.find(at); !loaded {
			if err := t.load(in, at*windowSize, at*windowSize+1); err != nil {
				return nil, err
			}
			i, _ = f.find(at)
			break
		}
	}
	if i == len(f.windows) {
		return nil, nil
	}
	return &f.windows[i], nil
}

// boundedRange returns how far one may go from lo towards hi, or with back from hi
// towards lo, without meeting many more than most extents. Only rows of
// a window that is dirty can make it more: MaxDirty bounds those.
func (t *Tree) boundedRange(in *inode, lo, hi int64, most int, back bool) (int64, error) {
	all := hi
	if back {
		all = lo
	}
	f := in.file
	if f.loaded(lo, hi) {
		offs := make([]int64, 0, 64)
		f.each(lo, hi, func(e extent) bool {
			offs = append(offs, e.off)
			return back || len(offs) <= most
		})
		switch {
		case len(offs) <= most:
			return all, nil
		case back:
			return max(lo, offs[len(offs)-most]), nil
		}
		return offs[most], nil
	}
	off, ok, err := t.index.nthExtent(in.ino, lo, hi, most, back)
	if err != nil {
		return 0, t.errno("read extents", err)
	}
	if !ok {
		return all, nil
	}
	return off, nil
}

// punchAhead makes lo..hi of a file a hole, from its end backwards and a piece at a
// time, until the rest fits the one record of the operation that c asks for. Other
// operations run between the pieces.
func (t *Tree) punchAhead(c Caller, ino Ino, lo, hi int64) error {
	for {
		at, err := t.punchPiece(c, ino, lo, hi)
		if err != nil || at <= lo {
			return err
		}
		hi = at
	}
}

// punchPiece takes out one piece and returns where it began; lo if none need be.
func (t *Tree) punchPiece(c Caller, ino Ino, lo, hi int64) (int64, error) {
	done, err := t.enter(c)
	if err != nil {
		return 0, err
	}
	defer t.leave()
	in, err := t.get(ino)
	if done != nil || err != nil || !in.isFile() || in.alloc <= mostRangeExtents {
		return lo, nil // nothing to do, or the operation will say what is wrong
	}
	if in, err = t.getFile(ino, 0, 0); err != nil {
		return 0, err
	}
	if hi = min(hi, in.size); lo >= hi {
		return lo, nil
	}
	at, err := t.boundedRange(in, lo, hi, mostRangeExtents, true)
	if err != nil || at <= lo {
		return lo, err
	}
	if err := t.load(in, at, hi); err != nil {
		return 0, err
	}
	o, err := t.record(opPunch, Caller{Writer: c.Writer, Time: c.Time})
	if err != nil {
		return 0, err
	}
	o.ino, o.off, o.n, o.from = ino, at, hi-at, in.size
	t.killPriv(&o, in, c)
	return at, t.commit(&o, nil, nil)
}
