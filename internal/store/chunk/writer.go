package chunk

import (
	"context"

	"holt"
	"holt/internal/store/db"
)

// Writer writes one part of a space. It is not safe for concurrent use. Nothing
// is visible before Commit.
type Writer struct {
	a           *Archive
	space, part string

	cutter *cutter
	run    []byte // not cut yet
	spans  []span // where the bytes of run belong

	m      *manifest
	known  map[ID]int // index into m.ids
	packs  []packed   // in the store
	b      builder
	stats  Written
	pace   pacer
	named  bool // the store may have a version of the space that refers to packs
	closed bool
}

type span struct {
	off int64
	n   int
}

// Written is what a writer stored.
type Written struct {
	Bytes  int64 // of content
	Chunks int   // different ones
	New    int   // chunks that the archive did not have
	Stored int64 // bytes of packs
}

// Create begins a part, which Commit stores in place of one with that name.
// Commit or Abort must follow.
func (a *Archive) Create(space, part string) *Writer {
	return &Writer{a: a, space: space, part: part, cutter: newCutter(), m: newManifest(), known: map[ID]int{}, pace: pacer{a: a}}
}

// Append adds p at offset off of the part. Offsets may come in any order.
// Consecutive calls with adjacent bytes form a run, which is cut into chunks by
// content; EndRun ends it.
func (w *Writer) Append(ctx context.Context, off int64, p []byte) error {
	if off < 0 || off > maxOffset-int64(len(p)) {
		return holt.Errorf(holt.InvalidArgument, "offset %d is out of range", off)
	}
	if len(p) == 0 {
		return nil
	}
	w.run = append(w.run, p...)
	w.spans = append(w.spans, span{off, len(p)})
	if err := w.pace.did(ctx, len(p)); err != nil {
		return err
	}
	return w.cut(ctx, MaxChunk)
}

// AppendChunk adds p at offset off of the part as one chunk, for content with
// natural boundaries such as memory pages. p has at most [MaxChunk] bytes. A
// run before it must be ended by [Writer.EndRun].
func (w *Writer) AppendChunk(ctx context.Context, off int64, p []byte) error {
	if off < 0 || off > maxOffset-int64(len(p)) || len(p) == 0 || len(p) > MaxChunk || len(w.run) > 0 {
		return holt.Errorf(holt.InvalidArgument, "%d bytes at %d cannot be a chunk", len(p), off)
	}
	w.spans = append(w.spans, span{off, len(p)})
	if err := w.pace.did(ctx, len(p)); err != nil {
		return err
	}
	return w.add(ctx, p)
}

// EndRun ends the run: the bytes that follow are unrelated, such as those of another file.
func (w *Writer) EndRun(ctx context.Context) error { return w.cut(ctx, 1) }

// cut makes chunks while at least least bytes are left.
func (w *Writer) cut(ctx context.Context, least int) error {
	at := 0
	for len(w.run)-at >= least {
		n := w.cutter.cut(w.run[at:])
		if err := w.add(ctx, w.run[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	w.run = append(w.run[:0], w.run[at:]...)
	return nil
}

// add makes one chunk of b, the first bytes of the run.
func (w *Writer) add(ctx context.Context, b []byte) error {
	id := Sum(b)
	i, ok := w.known[id]
	if !ok {
		i = len(w.m.ids)
		w.m.ids = append(w.m.ids, id)
		w.known[id] = i
		has, err := w.a.pin(ctx, id)
		if err != nil {
			return err
		}
		if !has {
			if err := w.keep(ctx, id, b); err != nil {
				return err
			}
		}
	}
	w.stats.Bytes += int64(len(b))
	for delta := 0; delta < len(b); {
		s := &w.spans[0]
		n := min(s.n, len(b)-delta)
		w.m.pieces = append(w.m.pieces, piece{s.off, n, i, delta})
		delta, s.off, s.n = delta+n, s.off+int64(n), s.n-n
		if s.n == 0 {
			w.spans = w.spans[1:]
		}
	}
	return nil
}

// keep adds a new chunk to the open pack.
func (w *Writer) keep(ctx context.Context, id ID, b []byte) error {
	if len(w.b.b) == 0 {
		w.b.begin()
	}
	w.b.b = w.a.codec.pack(w.b.b, b)
	w.b.close(id, len(b))
	w.stats.New++
	if len(w.b.b) < w.a.opt.packBytes && !w.b.full() {
		return nil
	}
	return w.putPack(ctx)
}

func (w *Writer) putPack(ctx context.Context) error {
	if len(w.b.entries) == 0 {
		return nil
	}
	p := packed{id: w.b.id, entries: append([]entry(nil), w.b.entries...)}
	w.packs = append(w.packs, p)
	if err := w.a.putPack(ctx, &w.b); err != nil {
		return err
	}
	w.packs[len(w.packs)-1].size = int64(len(w.b.b))
	w.stats.Stored += int64(len(w.b.b))
	w.b.b, w.b.entries = w.b.b[:0], w.b.entries[:0]
	return nil
}

// Commit stores the part. When it returns nil the part survives power loss.
// After an error it may or may not be stored; Commit can be repeated.
func (w *Writer) Commit(ctx context.Context) (Written, error) {
	defer w.Abort()
	if err := w.EndRun(ctx); err != nil {
		return w.stats, err
	}
	if err := w.putPack(ctx); err != nil {
		return w.stats, err
	}
	if err := w.m.settle(); err != nil {
		return w.stats, err
	}
	w.stats.Chunks = len(w.m.ids)
	err := w.a.update(ctx, w.space, update{made: w.m, packs: w.packs, named: &w.named, change: func(s *space) error {
		s.parts[w.part] = w.m.id
		return nil
	}})
	return w.stats, err
}

// Abort discards what was not committed and removes its packs from the store.
// [Archive.Collect] removes packs that cannot be removed now.
func (w *Writer) Abort() {
	if w.closed {
		return
	}
	w.closed = true
	if !w.named && len(w.packs) > 0 {
		if err := w.a.giveBack(w.packs); err != nil {
			w.a.log.Warn("cannot remove the packs of an aborted write now; the next collection removes them", "packs", len(w.packs), "error", err)
		}
	}
	w.a.land(w.packs)
	w.a.unpin(w.m.ids)
}

// giveBack removes packs that neither the store nor the index refers to, so
// that a full store has room at once. They are doomed first, so that no
// collection adopts one whose removal is delayed.
func (a *Archive) giveBack(packs []packed) error {
	err := a.index.WriteSync(a.ctx, func(tx *db.Tx) error {
		for _, p := range packs {
			if err := doom(tx, p.id.object(), rankPack); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !a.clearing.TryLock() {
		return err
	}
	defer a.clearing.Unlock()
	return a.clearSome(a.ctx, clearAtOnce+len(packs))
}

// update is a change of one space.
type update struct {
	made   *manifest // new, stored first
	packs  []packed  // new, already in the store
	change func(*space) error
	gone   bool  // the space is deleted
	named  *bool // if not nil, set before a version that refers to packs is stored
}

// clearAtOnce is how many doomed objects a change removes at its end. Collections remove the rest.
const clearAtOnce = 16

// update changes a space: it stores the manifest and the space's next version,
// then commits the index. reconcile repairs a crash between the steps.
func (a *Archive) update(ctx context.Context, name string, u update) error {
	if err := a.changeSpace(ctx, name, u); err != nil {
		return err
	}
	if err := a.fail("index.committed"); err != nil {
		return err
	}
	if !a.clearing.TryLock() {
		return nil // do not wait for a running removal
	}
	defer a.clearing.Unlock()
	if err := a.clearSome(ctx, clearAtOnce); err != nil {
		a.log.Warn("cannot remove replaced objects now; the next collection removes them", "space", name, "error", err)
	}
	return nil
}

// tornSoFar returns how many changes failed between the store and the index.
func (a *Archive) tornSoFar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.torn
}

func (a *Archive) changeSpace(ctx context.Context, name string, u update) (err error) {
	a.change.Lock()
	defer a.change.Unlock()
	s, err := a.space(ctx, name)
	if err != nil {
		return err
	}
	if err := u.change(s); err != nil {
		return err
	}
	if u.made != nil {
		b, err := u.made.encode()
		if err == nil {
			err = a.fail("manifest.put")
		}
		if err == nil {
			err = a.store.Put(ctx, u.made.id.object(), b)
		}
		if err != nil {
			return err
		}
	}
	if err := a.fail("space.put"); err != nil {
		return err
	}
	if u.named != nil {
		*u.named = true
	}
	defer func() {
		if err != nil { // the store may be ahead of the index
			a.mu.Lock()
			defer a.mu.Unlock()
			a.torn++
		}
	}()
	if err := a.putSpace(ctx, s, u.gone); err != nil {
		return err
	}
	if err := a.fail("index.commit"); err != nil {
		return err
	}
	// The store has it, so cancelling is too late: otherwise the next Drop of the
	// space would not see it.
	return a.index.WriteSync(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		for i := range u.packs {
			if err := u.packs[i].insert(tx); err != nil {
				return err
			}
		}
		if u.made != nil {
			if err := u.made.insert(tx); err != nil {
				return err
			}
		}
		return s.replace(tx, u.gone)
	})
}

// putSpace stores the next version of a space under a free number: a crash may
// have left a version that the index does not know.
func (a *Archive) putSpace(ctx context.Context, s *space, gone bool) error {
	if s.seq++; gone {
		return nil
	}
	for {
		err := a.store.Put(ctx, s.object(), s.encode())
		if holt.CodeOf(err) != holt.AlreadyExists {
			return err
		}
		s.seq++
	}
}
