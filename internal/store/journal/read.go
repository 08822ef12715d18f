package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
)

// Data is the place and length of a record's data, which suffices to read and
// verify any part of it.
type Data struct {
	Segment uint32 // ordinal
	Off     int64  // of the data in the segment
	Len     int    // bytes, as appended
}

// wantCached is the data length from which tables are cached.
const wantCached = 4 * BlockSize

type tableKey struct {
	segment uint32
	off     int64
}

// tableCache caches the tables of large records that are read in parts.
type tableCache struct {
	mu sync.Mutex
	m  map[tableKey][]byte
}

const mostTables = 8192

func (c *tableCache) get(d Data) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[tableKey{d.Segment, d.Off}]
}

func (c *tableCache) put(d Data, table []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= mostTables {
		for k := range c.m { // evict a random one: map order is random
			delete(c.m, k)
			break
		}
	}
	c.m[tableKey{d.Segment, d.Off}] = slices.Clone(table)
}

func (c *tableCache) forget(segment uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.m {
		if k.segment == segment {
			delete(c.m, k)
		}
	}
}

var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// find returns the segment with an ordinal, or nil.
func (j *Journal) find(ordinal uint32) *segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, ok := slices.BinarySearchFunc(j.segs, ordinal, func(s *segment, o uint32) int { return int(s.ordinal) - int(o) })
	if !ok {
		return nil
	}
	return j.segs[i]
}

// ReadData fills p with the bytes of d from delta, which must lie inside d,
// after verifying every block that holds them. It returns ErrChecksum if they
// are damaged and ErrGone if the segment is missing.
func (j *Journal) ReadData(d Data, delta int, p []byte) error {
	if delta < 0 || len(p) == 0 || delta+len(p) > d.Len {
		return fmt.Errorf("read %d bytes at %d of %d in segment %d: out of range", len(p), delta, d.Len, d.Segment)
	}
	s := j.find(d.Segment)
	if s == nil {
		return fmt.Errorf("read segment %d: %w", d.Segment, ErrGone)
	}
	o, err := j.files.get(s)
	if errors.Is(err, fs.ErrNotExist) && j.find(d.Segment) == nil {
		err = ErrGone // it was removed after find
	}
	if err != nil {
		return fmt.Errorf("read segment %s: %w", s.id, err)
	}
	defer j.files.put(o)
	if err := j.readBlocks(o.file, d, delta, p); err != nil {
		return fmt.Errorf("read segment %s at %d: %w", s.id, d.Off+int64(delta), err)
	}
	return nil
}

// readBlocks reads the blocks that hold delta..delta+len(p), directly into p if
// p is exactly those blocks.
func (j *Journal) readBlocks(f File, d Data, delta int, p []byte) error {
	first := delta / BlockSize * BlockSize
	end := min((delta+len(p)+BlockSize-1)/BlockSize*BlockSize, d.Len)
	nt := tableSize(d.Len)
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	b := slices.Grow((*buf)[:0], nt+end-first)
	*buf = b
	table, blocks := b[:nt], p
	if first != delta || end != delta+len(p) {
		blocks = b[nt : nt+end-first]
	}
	if err := j.fetch(f, d, first, table, blocks); err != nil {
		return err
	}
	if !verify(table[first/BlockSize*4:], blocks) {
		return ErrChecksum
	}
	if first != delta || end != delta+len(p) {
		copy(p, blocks[delta-first:])
	}
	return nil
}

// fetch reads table and blocks, with one call if they are adjacent or the table is cached.
func (j *Journal) fetch(f File, d Data, first int, table, blocks []byte) error {
	at := d.Off - int64(len(table))
	if first == 0 {
		return f.ReadVec([][]byte{table, blocks}, at)
	}
	if known := j.tables.get(d); known != nil {
		copy(table, known)
	} else {
		if err := f.ReadVec([][]byte{table}, at); err != nil {
			return err
		}
		if d.Len >= wantCached {
			j.tables.put(d, table)
		}
	}
	return f.ReadVec([][]byte{blocks}, d.Off+int64(first))
}
