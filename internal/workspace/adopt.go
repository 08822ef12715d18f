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
	Part  string
	Bytes int64 // at most [MostAdopted]
}

// mostAdopted is how many parts a workspace shares: packing looks at each.
const mostAdopted = 20_000

// mostInGroup is how many extents one group of records gives to a file: 64 GiB.
const mostInGroup = 16 << 10

// adoption is segments whose extents the index may not have yet: packing leaves their parts alone.
type adoption struct {
	first uint32       // ordinal
	ids   []journal.ID // of it and those behind it
	named int          // so many the journal names
	done  bool
}

// adopt gives an empty file the bytes of a space's parts, in the order of sources: in one step, or for a very large file in several.
func (t *Tree) adopt(ctx context.Context, c Caller, ino Ino, space string, sources []Source) error {
	if t.opt.Archive == nil {
		return holt.Errorf(holt.Unsupported, "the workspace has no archive")
	}
	for _, s := range sources {
		if s.Bytes < 1 || s.Bytes > MostAdopted {
			return fmt.Errorf("share part %s of %s: invalid size %d", s.Part, space, s.Bytes)
		}
	}
	t.mu.RLock()
	next := uint32(t.count.NextAdopted)
	t.mu.RUnlock()
	a, err := t.packer.begin(next, len(sources))
	if err != nil {
		return err
	}
	defer t.packer.end(a)
	if err := t.shareParts(ctx, space, sources, a); err != nil {
		return diskError("share stored bytes", err)
	}
	in := adopting{ino: ino, sources: sources, a: a}
	for in.source < len(sources) {
		if err := t.mutate(c, func() error { return t.commitAdopted(c, &in) }); err != nil {
			return err
		}
		if err := t.fail("adopt.group"); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) shareParts(ctx context.Context, space string, sources []Source, a *adoption) error {
	parts := map[string]string{}
	for i, s := range sources {
		parts[a.ids[i].String()] = s.Part
	}
	err := t.opt.Archive.Share(ctx, space, t.opt.Space, parts)
	if holt.CodeOf(err) == holt.NotFound {
		err = holt.Errorf(holt.NotFound, "what is copied was deleted meanwhile")
	}
	if err != nil {
		return err
	}
	return t.fail("adopt.shared")
}

// adopting is how far a file has been given its bytes.
type adopting struct {
	ino     Ino
	sources []Source
	a       *adoption
	source  int   // the next
	place   int64 // in it
	off     int64 // in the file
}

// commitAdopted gives the file its next extents, with the ids of their segments, in one step; mu is held.
func (t *Tree) commitAdopted(c Caller, at *adopting) error {
	in, err := t.getFile(at.ino, 0, 0)
	if err != nil {
		return err
	}
	var left int64 // bytes
	for _, s := range at.sources[at.source:] {
		left += s.Bytes
	}
	left -= at.place
	if q := t.opt.Quota; at.off+left > maxSize || q.Bytes > 0 && left > q.Bytes-int64(t.count.Allocated) {
		return holt.Errorf(holt.OutOfSpace, "the workspace would exceed its quota").WithHint("delete files, or raise the quota: holt workspace quota")
	}
	var all parts
	next := *at
	for n := 0; next.source < len(next.sources) && n < t.opt.mostInGroup; {
		ordinal, bytes := next.a.first+uint32(next.source), next.sources[next.source].Bytes
		if next.place == 0 {
			id := next.a.ids[next.source]
			all.add(&op{kind: opAdopt, n: int64(ordinal), blob: id[:]})
		}
		var extents []extent
		begin := next.off
		for next.place < bytes && len(extents) < min(mostParts/32, t.opt.mostInGroup) {
			e := extent{off: next.off, n: uint32(min(bytes-next.place, journal.MaxData, windowSize-next.off%windowSize)), segment: ordinal, place: uint32(next.place)}
			e.whole = e.n
			extents = append(extents, e)
			next.place, next.off = next.place+int64(e.n), e.end()
		}
		n += len(extents)
		all.add(&op{kind: opExtents, ino: at.ino, off: begin, n: next.off - begin, blob: packExtents(begin, extents)})
		if next.place == bytes {
			next.source, next.place = next.source+1, 0
		}
	}
	end, err := t.record(opPartsEnd, Caller{Writer: c.Writer, Time: c.Time})
	if err != nil {
		return err
	}
	all.add(&op{kind: opImage, ino: at.ino, mode: in.mode & 07777, uid: in.uid, gid: in.gid, n: next.off, atime: in.atime, mtime: end.time, ctime: end.time, author: end.writer})
	if err := t.commitParts(all, end); err != nil {
		return err
	}
	*at = next
	if at.a.named = at.source; at.place > 0 {
		at.a.named++
	}
	return nil
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
func (k *packer) begin(next uint32, n int) (*adoption, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	shared := n
	for ordinal := range k.parts {
		if ordinal >= firstAdopted {
			shared++
		}
	}
	if shared > mostAdopted {
		return nil, holt.Errorf(holt.TooMany, "the workspace would share %d parts of artifacts; the maximum is %d", shared, mostAdopted).WithHint("delete copies of artifacts, or checkpoints that have them")
	}
	a := &adoption{first: max(next, k.next, firstAdopted)}
	k.next = a.first + uint32(n)
	if k.parts == nil {
		k.parts = map[uint32]string{}
	}
	for i := range uint32(n) {
		id := journal.ID(newID())
		a.ids, k.parts[a.first+i] = append(a.ids, id), id.String()
	}
	k.adoptions = append(k.adoptions, a)
	return a, nil
}

// end gives back the ordinals of which the journal names nothing: it never will.
func (k *packer) end(a *adoption) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a.done = true
	for i := a.named; i < len(a.ids); i++ {
		delete(k.parts, a.first+uint32(i))
	}
}

// known returns the segments whose bytes the archive has, without those that the index may not have yet, and the names of all.
func (k *packer) known() (known map[uint32]string, named map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, named = maps.Clone(k.parts), map[string]bool{}
	for _, name := range k.parts {
		named[name] = true
	}
	for _, a := range k.adoptions {
		for i := range a.ids {
			delete(known, a.first+uint32(i))
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
