package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Record is a recovered record. Meta is valid only during the call.
type Record struct {
	Pos     Pos
	End     Pos
	Meta    []byte
	Segment uint32 // ordinal
	Data    int64  // offset of the data in the segment
	DataLen int
}

// ErrPast is returned if no complete record ends at a position that should hold one.
var ErrPast = errors.New("the position is past the last complete record")

// First returns the position of the oldest record in the journal.
func (j *Journal) First() Pos {
	if len(j.segs) == 0 {
		return makePos(1, headerSize)
	}
	return makePos(j.segs[0].ordinal, headerSize)
}

// Complete reports whether no segment since the first has been removed.
func (j *Journal) Complete() bool {
	for i, s := range j.segs {
		if s.ordinal != uint32(i+1) || i > 0 && s.prev != j.segs[i-1].id {
			return false
		}
	}
	return true
}

// Whole reports whether a complete record starts at pos and ends at end.
func (j *Journal) Whole(pos, end Pos) bool {
	s := j.find(pos.Segment())
	if s == nil || pos.Segment() != end.Segment() {
		return false
	}
	o, err := j.files.get(s)
	if err != nil {
		return false
	}
	defer j.files.put(o)
	b, err := readRecord(o.file, s.id, pos.Offset(), min(s.end, end.Offset()))
	return err == nil && pos.Offset()+int64(len(b)) == end.Offset()
}

// Recover calls fn for every record from a position (a record's start or end)
// in order, up to the first that is not complete, and opens the journal for
// appending there. It returns ErrPast if from is not a valid position.
func (j *Journal) Recover(from Pos, fn func(Record) error) error {
	i := 0
	for i < len(j.segs) && j.segs[i].ordinal < from.Segment() {
		i++
	}
	if i == len(j.segs) || j.segs[i].ordinal != from.Segment() {
		if len(j.segs) > 0 || from > makePos(1, headerSize) {
			return fmt.Errorf("recover journal from %v: %w", from, ErrPast)
		}
		j.end.Store(uint64(makePos(1, headerSize)))
		j.synced.Store(j.end.Load())
		return nil
	}
	off := from.Offset()
	for ; ; i++ {
		s := j.segs[i]
		size := s.end
		end, err := j.scan(s, max(off, headerSize), j.limit(i), fn)
		if err != nil {
			return err
		}
		s.end, s.synced, off = end, end, 0
		if i+1 < len(j.segs) && j.follows(s, j.segs[i+1]) {
			continue
		}
		return j.finish(i, size)
	}
}

// limit returns the maximum end of the records of segment i.
func (j *Journal) limit(i int) int64 {
	s := j.segs[i]
	if i+1 < len(j.segs) && j.segs[i+1].prev == s.id {
		return min(s.end, j.segs[i+1].prevEnd)
	}
	return s.end
}

// follows reports whether next continues exactly where s ends.
func (j *Journal) follows(s, next *segment) bool {
	return next.ordinal == s.ordinal+1 && next.prev == s.id && next.prevEnd == s.end
}

// finish makes segment i the last one; later segments are not part of the
// prefix. Bytes behind its end stay, and the next append starts a new segment.
func (j *Journal) finish(i int, size int64) error {
	for _, s := range j.segs[i+1:] {
		if err := j.aside(s.path, fmt.Errorf("earlier records are lost")); err != nil {
			return err
		}
	}
	j.segs = j.segs[:i+1]
	for k := range i {
		j.segs[k].end = j.limit(k)
	}
	s := j.segs[i]
	j.last = s
	blank, err := j.blank(s, size)
	if err != nil {
		return err
	}
	if blank {
		j.active, s.blank = s, size
	} else {
		j.log.Warn("journal ends in a torn record", "segment", s.id, "end", s.end, "bytes", size-s.end)
	}
	j.end.Store(uint64(makePos(s.ordinal, s.end)))
	j.synced.Store(j.end.Load())
	return nil
}

// blank reports whether nothing follows the end of s except zeros that were
// written ahead. Other bytes could be taken for a record once new records
// precede them.
func (j *Journal) blank(s *segment, size int64) (bool, error) {
	if size == s.end {
		return true, nil
	}
	o, err := j.files.get(s)
	if err != nil {
		return false, err
	}
	defer j.files.put(o)
	b := make([]byte, blankSize)
	for off := s.end; off < size; off += int64(len(b)) {
		b = b[:min(int64(len(b)), size-off)]
		if err := o.file.ReadVec([][]byte{b}, off); err != nil {
			return false, fmt.Errorf("read segment %s at %d: %w", s.id, off, err)
		}
		if len(bytes.TrimLeft(b, "\x00")) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// scan reads the records of one segment from off up to limit and returns the
// end of the last complete one.
func (j *Journal) scan(s *segment, off, limit int64, fn func(Record) error) (int64, error) {
	o, err := j.files.get(s)
	if err != nil {
		return 0, err
	}
	defer j.files.put(o)
	// The records may be only in the page cache, if the process died and not the
	// machine. The caller must be able to rely on them.
	if err := o.file.Sync(); err != nil {
		return 0, fmt.Errorf("sync segment %s: %w", s.id, err)
	}
	r := window{f: o.file, limit: limit}
	for off < limit {
		b, err := r.record(off)
		if err != nil {
			return 0, fmt.Errorf("read segment %s at %d: %w", s.id, off, err)
		}
		meta, data, n, err := decodeRecord(b, s.id, off)
		if err != nil {
			break
		}
		rec := Record{Pos: makePos(s.ordinal, off), End: makePos(s.ordinal, off+int64(n)), Meta: meta,
			Segment: s.ordinal, Data: off + int64(n-len(data)), DataLen: len(data)}
		if err := fn(rec); err != nil {
			return 0, err
		}
		off += int64(n)
	}
	return off, nil
}

// window reads a file sequentially in large pieces.
type window struct {
	f     File
	limit int64
	buf   []byte
	start int64
}

// record returns the bytes of the record at off, or fewer if the file ends before.
func (w *window) record(off int64) ([]byte, error) {
	b, err := w.at(off, headSize)
	if err != nil {
		return nil, err
	}
	m, d, err := decodeHead(b)
	if err != nil {
		return b, nil // decodeRecord returns the same error
	}
	return w.at(off, headSize+m+tableSize(d)+d)
}

func (w *window) at(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.limit-off))
	if off < w.start || off+int64(n) > w.start+int64(len(w.buf)) {
		size := int(min(max(int64(n), 1<<20), w.limit-off))
		if cap(w.buf) < size {
			w.buf = make([]byte, size)
		}
		w.buf, w.start = w.buf[:size], off
		if err := w.f.ReadVec([][]byte{w.buf}, off); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
	}
	return w.buf[off-w.start:][:n], nil
}
