package workspace

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"holt"
	"holt/internal/store/journal"
)

// A file can get bytes that the archive has in another space, such as an artifact's, without a copy of them. The archive
// shares the part with the workspace's space ([chunk.Archive.Share]), under the id of a segment that was never in the journal:
// a packed one, to all that reads. Its ordinal is at least firstAdopted, so that no segment of the journal ever has it. Then one
// group of records names the segments and gives the file extents in them. A crash before the group leaves a part that
// nothing names, which packing removes ([packer.forget]).

// firstAdopted is the first ordinal of segments that were never in the journal.
const firstAdopted = 1 << 31

// MostAdopted is how many bytes one [Source] can have: a place in a segment has 32 bits.
const MostAdopted = 1<<32 - journal.MaxData

// Source is all of one part of another space of the archive.
type Source struct {
	Space, Part string
	Bytes       int64 // of the part; at most [MostAdopted]
}

// adoption is segments whose extents the index may not have yet: packing leaves their parts alone.
type adoption struct {
	ids  map[uint32]journal.ID
	done bool // the journal names them
}

// adopt gives an empty file the bytes of sources, in their order.
func (t *Tree) adopt(ctx context.Context, c Caller, ino Ino, sources []Source) error {
	if t.opt.Archive == nil {
		return holt.Errorf(holt.Unsupported, "the workspace has no archive")
	}
	for _, s := range sources {
		if s.Bytes < 1 || s.Bytes > MostAdopted {
			return fmt.Errorf("share part %s of %s: invalid size %d", s.Part, s.Space, s.Bytes)
		}
	}
	t.mu.RLock()
	next := uint32(t.count.NextAdopted)
	t.mu.RUnlock()
	a, first := t.packer.begin(next, len(sources))
	err := t.shareParts(ctx, sources, a, first)
	if err == nil {
		err = t.mutate(c, func() error { return t.commitAdopted(c, ino, sources, a, first) })
	}
	t.packer.end(a, err)
	return err
}

func (t *Tree) shareParts(ctx context.Context, sources []Source, a *adoption, first uint32) error {
	from := map[string]map[string]string{} // space, name there, its part
	for i, s := range sources {
		if from[s.Space] == nil {
			from[s.Space] = map[string]string{}
		}
		from[s.Space][a.ids[first+uint32(i)].String()] = s.Part
	}
	for space, parts := range from {
		if err := t.opt.Archive.Share(ctx, space, t.opt.Space, parts); err != nil {
			return err
		}
	}
	return t.fail("adopt.shared")
}

// commitAdopted names the segments and gives the file its extents, in one step; mu is held.
func (t *Tree) commitAdopted(c Caller, ino Ino, sources []Source, a *adoption, first uint32) error {
	in, err := t.getFile(ino, 0, 0)
	if err != nil {
		return err
	}
	var size int64
	for _, s := range sources {
		size += s.Bytes
	}
	if q := t.opt.Quota; size > maxSize || q.Bytes > 0 && size > q.Bytes-int64(t.count.Allocated) {
		return holt.Errorf(holt.OutOfSpace, "the workspace would exceed its quota").WithHint("delete files, or raise the quota: holt workspace quota")
	}
	var all parts
	var off int64
	for i, s := range sources {
		ordinal := first + uint32(i)
		id := a.ids[ordinal]
		all.add(&op{kind: opAdopt, n: int64(ordinal), blob: id[:]})
		for place := int64(0); place < s.Bytes; {
			var extents []extent
			begin := off + place
			for ; place < s.Bytes && len(extents) < mostParts/32; place += int64(extents[len(extents)-1].n) {
				n := min(s.Bytes-place, journal.MaxData, windowSize-(off+place)%windowSize)
				extents = append(extents, extent{off: off + place, n: uint32(n), segment: ordinal, place: uint32(place), whole: uint32(n)})
			}
			all.add(&op{kind: opExtents, ino: ino, off: begin, n: off + place - begin, blob: packExtents(begin, extents)})
		}
		off += s.Bytes
	}
	end, err := t.record(opPartsEnd, Caller{Writer: c.Writer, Time: c.Time})
	if err != nil {
		return err
	}
	all.add(&op{kind: opImage, ino: ino, mode: in.mode & 07777, uid: in.uid, gid: in.gid, n: size, atime: in.atime, mtime: end.time, ctime: end.time, author: end.writer})
	return t.commitParts(all, end)
}

// applyAdopt names a segment that was never in the journal.
func (t *memory) applyAdopt(o *op) error {
	if o.n < firstAdopted || o.n > 1<<32-2 || len(o.blob) != len(journal.ID{}) {
		return fmt.Errorf("%w: segment %d", errApply, o.n)
	}
	t.count.NextAdopted = max(t.count.NextAdopted, uint64(o.n)+1)
	t.batch.adopted = append(t.batch.adopted, journal.Segment{Ordinal: uint32(o.n), ID: journal.ID(o.blob)})
	return nil
}

// begin gives out n ordinals from next on, which reads find from now on, and packing leaves alone.
func (k *packer) begin(next uint32, n int) (*adoption, uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := max(next, k.next, firstAdopted)
	k.next = first + uint32(n)
	a := &adoption{ids: map[uint32]journal.ID{}}
	if k.parts == nil {
		k.parts = map[uint32]string{}
	}
	for i := range uint32(n) {
		id := journal.ID(newID())
		a.ids[first+i], k.parts[first+i] = id, id.String()
	}
	k.adoptions = append(k.adoptions, a)
	return a, first
}

// end says what became of an adoption.
func (k *packer) end(a *adoption, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a.done = true; err == nil {
		return
	}
	for ordinal := range a.ids {
		delete(k.parts, ordinal)
	}
}

// known returns the segments whose bytes the archive has, without those that the index may not have yet, and the names of all.
func (k *packer) known() (known map[uint32]string, named []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	named, known = slices.Collect(maps.Values(k.parts)), maps.Clone(k.parts)
	for _, a := range k.adoptions {
		for ordinal := range a.ids {
			delete(known, ordinal)
		}
	}
	return known, named
}

// settled returns the adoptions that have ended, which the index knows after the next flush.
func (k *packer) settled() (list []*adoption) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.adoptions {
		if a.done {
			list = append(list, a)
		}
	}
	return list
}

// indexed says that the index has these.
func (k *packer) indexed(list []*adoption) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.adoptions = slices.DeleteFunc(k.adoptions, func(a *adoption) bool { return slices.Contains(list, a) })
}
