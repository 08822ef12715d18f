package chunk

import (
	"context"

	"holt"
	"holt/internal/store/db"
)

// Writer makes one part of a space. It belongs to one goroutine. Nothing of
// it is seen before Commit.
type Writer struct {
	a           *Archive
	space, part string

	cutter *cutter
	run    []byte // what was not cut yet
	spans  []span // where its bytes belong

	m      *manifest
	known  map[ID]int // index into m.ids
	packs  []packed   // in the store
	b      builder
	stats  Written
	pace   pacer
	named  bool // the store may have a version of the space that needs packs
	closed bool
}

type span struct {
	off int64
	n   int
}

// Written says what a writer did.
type Written struct {
	Bytes  int64 // of content
	Chunks int   // different ones
	New    int   // chunks that the archive did not have
	Stored int64 // bytes of packs
}

// Create begins a part, which replaces the one with that name, if any, on
// Commit. Commit or Abort must follow.
func (a *Archive) Create(space, part string) *Writer {
	return &Writer{a: a, space: space, part: part, cutter: newCutter(), m: newManifest(), known: map[ID]int{}, pace: pacer{a: a}}
}

// Append adds p as bytes off and on of the part. Calls may come in any order
// of offsets: bytes of calls that follow each other form a run, which is cut
// into chunks by its content, until EndRun.
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

// AppendChunk adds p as bytes off and on of the part, and as one chunk: for
// content whose place says best where it is cut, as that of memory. p has at
// most [MaxChunk] bytes; what came before has to be ended by [Writer.EndRun].
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

// EndRun says that what comes next has nothing to do with what came before: a
// file ends.
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

// keep puts a chunk that is new into the pack that is being made.
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

// Commit makes the part what it is from now on. When it returns nil the part
// survives power loss. After an error it may have happened; doing it again
// does no harm.
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

// Abort gives up what was not committed, and takes its packs out of the store
// again. Those that cannot be removed now are by [Archive.Collect].
func (w *Writer) Abort() {
	if w.closed {
		return
	}
	w.closed = true
	if !w.named && len(w.packs) > 0 {
		if err := w.a.giveBack(w.packs); err != nil {
			w.a.log.Warn("packs of work that was given up are removed later", "packs", len(w.packs), "error", err)
		}
	}
	w.a.land(w.packs)
	w.a.unpin(w.m.ids)
}

// giveBack removes packs that nothing in the store or the index refers to: a
// far store that is full has room again at once. They are doomed first, so that
// no collection takes one in that goes late.
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
	made   *manifest // new, to be stored first
	packs  []packed  // new, in the store already
	change func(*space) error
	gone   bool  // the space ends
	named  *bool // if not nil, set before the store is told of packs
}

// clearAtOnce is how many objects a change removes at its end; collections
// remove the rest.
const clearAtOnce = 16

// update changes a space: the manifest, the space's next version, then the
// index. Crashes between the steps are put right by reconcile.
func (a *Archive) update(ctx context.Context, name string, u update) error {
	if err := a.changeSpace(ctx, name, u); err != nil {
		return err
	}
	if err := a.fail("index.committed"); err != nil {
		return err
	}
	if !a.clearing.TryLock() {
		return nil // whoever removes objects now does not keep us waiting
	}
	defer a.clearing.Unlock()
	if err := a.clearSome(ctx, clearAtOnce); err != nil {
		a.log.Warn("what is replaced cannot be removed yet", "space", name, "error", err)
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
		if err != nil { // the store may have what the index has not
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
	// The store has it: who gives up now is too late. Else whoever drops the space next would not see it.
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

// putSpace stores the next version of a space, under a number that is free: a
// crash may have left one that the index does not know.
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
