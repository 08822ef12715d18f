package workspace

import (
	"cmp"
	"slices"
)

// windowSize is the piece of a file whose extents are loaded, searched and
// moved together; no extent crosses its border.
const windowSize = 8 << 20

// extent says where bytes off..off+n of a file lie: delta bytes into the data
// of a record, which begins at place in a segment and is whole bytes long.
type extent struct {
	off     int64
	n       uint32
	segment uint32
	place   uint32 // a segment is below 4 GiB
	whole   uint32
	delta   uint32
	born    uint32
}

func (e extent) end() int64 { return e.off + int64(e.n) }

// cut returns the part of e inside lo..hi.
func (e extent) cut(lo, hi int64) extent {
	hi, lo = min(hi, e.end()), max(lo, e.off)
	e.delta += uint32(lo - e.off)
	e.off, e.n = lo, uint32(hi-lo)
	return e
}

// joins reports whether b begins where e ends, in the file and in the record.
func (e extent) joins(b extent) bool {
	return e.end() == b.off && e.segment == b.segment && e.place == b.place && e.delta+e.n == b.delta &&
		e.born == b.born && e.off/windowSize == b.off/windowSize
}

// file is the regular-file part of an inode: its extents, by windows. A window
// that is not there is not loaded, unless complete: then it is empty.
type file struct {
	windows  []window // by number
	complete bool
}

type window struct {
	number  int64
	extents []extent // by offset, disjoint
}

func (f *file) find(number int64) (int, bool) {
	return slices.BinarySearchFunc(f.windows, number, func(w window, n int64) int { return cmp.Compare(w.number, n) })
}

// window returns the window with a number; it must be loaded or complete. A
// new one counts as an extent: empty ones need bounds too.
func (f *file) window(number int64, c counter) *window {
	i, ok := f.find(number)
	if !ok {
		f.windows = slices.Insert(f.windows, i, window{number: number})
		c.extents(1)
	}
	return &f.windows[i]
}

// counter hears how many extents are loaded or dropped.
type counter interface{ extents(delta int) }

// loaded tells whether lo..hi is known.
func (f *file) loaded(lo, hi int64) bool {
	if f.complete || lo >= hi {
		return true
	}
	for n := lo / windowSize; n <= (hi-1)/windowSize; n++ {
		if _, ok := f.find(n); !ok {
			return false
		}
	}
	return true
}

// first returns the index of the first extent that ends after off.
func (w *window) first(off int64) int {
	i, _ := slices.BinarySearchFunc(w.extents, off, func(e extent, o int64) int { return cmp.Compare(e.end(), o+1) })
	return i
}

// changes hears which rows of the extent table a change touches, and how many
// bytes and extents it adds or takes.
type changes interface {
	counter
	row(off int64)
	bytes(delta int64)
	replaced(e extent) (born uint32) // what is left of e is born then
}

// remove takes lo..hi out, inside one window.
func (w *window) remove(lo, hi int64, c changes) {
	i := w.first(lo)
	j := i
	var keep [2]extent
	n := 0
	for ; j < len(w.extents) && w.extents[j].off < hi; j++ {
		e := w.extents[j]
		c.row(e.off)
		c.bytes(-int64(e.n))
		e.born = c.replaced(e)
		if e.off < lo {
			keep[n] = e.cut(e.off, lo)
			n++
		}
		if e.end() > hi {
			keep[n] = e.cut(hi, e.end())
			n++
		}
	}
	if i == j {
		return
	}
	for _, e := range keep[:n] {
		c.row(e.off)
		c.bytes(int64(e.n))
	}
	c.extents(n - (j - i))
	w.extents = slices.Replace(w.extents, i, j, keep[:n]...)
}

// insert puts e where nothing is, joining it to the one before if it can.
func (w *window) insert(e extent, c changes) {
	i := w.first(e.off)
	c.bytes(int64(e.n))
	if i > 0 && w.extents[i-1].joins(e) {
		c.row(w.extents[i-1].off)
		w.extents[i-1].n += e.n
		return
	}
	c.row(e.off)
	c.extents(1)
	w.extents = slices.Insert(w.extents, i, e)
}

// put makes e what the file has there.
func (f *file) put(e extent, c changes) {
	for e.n > 0 {
		number := e.off / windowSize
		w := f.window(number, c)
		part := e.cut(e.off, (number+1)*windowSize)
		w.remove(part.off, part.end(), c)
		w.insert(part, c)
		e = e.cut(part.end(), e.end())
	}
}

// remove makes lo..hi a hole. What is not loaded is taken as empty.
func (f *file) remove(lo, hi int64, c changes) {
	i, _ := f.find(lo / windowSize)
	for ; i < len(f.windows) && f.windows[i].number*windowSize < hi; i++ {
		f.windows[i].remove(lo, hi, c)
	}
}

// each calls fn for the extents that overlap lo..hi, in order, until it
// returns false.
func (f *file) each(lo, hi int64, fn func(extent) bool) {
	i, _ := f.find(lo / windowSize)
	for ; i < len(f.windows) && f.windows[i].number*windowSize < hi; i++ {
		w := &f.windows[i]
		for _, e := range w.extents[w.first(lo):] {
			if e.off >= hi || !fn(e) {
				return
			}
		}
	}
}

// hole tells whether lo..hi, which is loaded, holds no bytes.
func (in *inode) hole(lo, hi int64) bool {
	if in.file == nil {
		return true
	}
	empty := true
	in.file.each(lo, hi, func(extent) bool { empty = false; return false })
	return empty
}

// count returns how many extents and windows are loaded.
func (f *file) count() (n int) {
	for _, w := range f.windows {
		n += 1 + len(w.extents)
	}
	return n
}

// row returns the extent that starts at off.
func (f *file) row(off int64) (extent, bool) {
	i, ok := f.find(off / windowSize)
	if !ok {
		return extent{}, false
	}
	w := &f.windows[i]
	k := w.first(off)
	if k == len(w.extents) || w.extents[k].off != off {
		return extent{}, false
	}
	return w.extents[k], true
}
