package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// rows are the values of a batch, copied at one position of the journal.
type rows struct {
	batch    *batch
	count    counters
	grown    int64 // Tree.grown
	freed    []freedRow
	inodes   []inodeRow
	entries  []entryRow
	extents  []extentRow
	xattrs   []xattrRow
	epochs   []epochRow
	segments []journal.Segment
}

type inodeRow struct {
	node
	target string
	parent Ino
	cookie uint64
}

type entryRow struct {
	parent Ino
	name   string
	dentry // ino 0: no row
}

type extentRow struct {
	ino Ino
	extent
}

type xattrRow struct {
	ino  Ino
	name string
	xattr
}

type epochRow struct {
	number         Epoch
	open           bool
	id             [16]byte
	kind           MountKind
	request, reply []byte
}

// Flush writes every answered operation to the index: queries then see it.
func (w *Workspace) Flush() error {
	if err := w.tree.flush(); err != nil {
		return fmt.Errorf("flush workspace: %w", err)
	}
	return nil
}

// flush writes one batch. The order is what keeps the index behind the
// journal: cut, sync the journal up to the cut, commit rows and position
// together. It never runs on the way to an answer.
func (t *Tree) flush() error {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	t.mu.Lock()
	r := t.cut()
	t.mu.Unlock()
	err := t.storeWithReserve(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finishFlush(r, err)
}

// flushHeld is flush for a caller that holds flushMu and mu, and keeps them:
// everybody waits for the disk. It is for the rare operation that needs the
// index to say exactly what memory does.
func (t *Tree) flushHeld() error {
	r := t.cut()
	err := t.storeWithReserve(r)
	return t.finishFlush(r, err)
}

// storeWithReserve is store, with the reserve if the disk is full.
func (t *Tree) storeWithReserve(r *rows) error {
	err := t.store(r)
	if full(err) {
		return t.reserve.release(func() error { return t.store(r) })
	}
	return err
}

// finishFlush notes what became of a cut; mu is held.
func (t *Tree) finishFlush(r *rows, err error) error {
	t.writing, t.failing = 0, err
	if err != nil {
		t.putBack(r)
	} else {
		t.markClean(r)
		t.grownStored = r.grown
	}
	t.flushed.Broadcast()
	return err
}

// store makes a cut durable in the journal, then commits it.
func (t *Tree) store(r *rows) error {
	if r.batch.ops == 0 {
		return nil
	}
	if err := t.fail("flush.sync"); err != nil {
		return err
	}
	if err := t.journal.Sync(journal.Pos(r.count.Applied)); err != nil {
		return err
	}
	if err := t.fail("flush.commit"); err != nil {
		return err
	}
	err := t.index.db.Write(context.Background(), r.write)
	_ = t.fail("flush.committed") // a place to die, not to fail
	return err
}

// cut copies the dirty values and starts a new batch.
func (t *Tree) cut() *rows {
	b := t.batch
	r := &rows{batch: b, count: t.count, grown: t.grown}
	if last := journal.Pos(t.count.Applied).Segment(); last != t.indexedSegment { // the journal has no end yet while it is replayed
		r.segments = slices.DeleteFunc(t.journal.Segments(), func(s journal.Segment) bool { return s.Ordinal > last })
	}
	r.count.Replies = t.oldestReply(t.count.Applied)
	unseen := map[Ino]struct{}{} // made and gone between two batches: in no version
	for _, in := range b.inodes {
		if in.freed {
			if !in.indexed && !t.outlived(in) {
				unseen[in.ino] = struct{}{}
				continue
			}
			r.freed = append(r.freed, freedRow{in.ino, in.born})
			continue
		}
		in.indexed = true
		r.inodes = append(r.inodes, in.row())
	}
	for _, k := range b.entries {
		e, ok := k.dir.dir.entries[k.name]
		if !ok || e.ino == 0 && !e.indexed {
			continue
		}
		r.entries = append(r.entries, entryRow{k.dir.ino, k.name, e})
		if !e.indexed {
			e.indexed = true
			k.dir.dir.entries[k.name] = e
		}
	}
	for k := range b.extents {
		in := t.inodes.m[k.ino]
		if _, ok := unseen[k.ino]; ok || in == nil || in.file == nil {
			continue
		}
		e, ok := in.file.row(k.off)
		if !ok {
			e = extent{off: k.off}
		}
		r.extents = append(r.extents, extentRow{k.ino, e})
	}
	slices.SortFunc(r.extents, func(a, b extentRow) int { // neighbours share pages
		return cmp.Or(cmp.Compare(a.ino, b.ino), cmp.Compare(a.off, b.off))
	})
	for _, k := range b.xattrs {
		if _, ok := unseen[k.in.ino]; !ok && k.in.extra != nil {
			r.xattrs = append(r.xattrs, xattrRow{k.in.ino, k.name, k.in.extra.xattrs[k.name]})
		}
	}
	r.epochs = t.epochRows(b)
	t.writing = b.rows()
	t.batch = newBatch(dirtyA + dirtyB - b.stage)
	return r
}

// epochRows copies the epochs that a batch changed.
func (t *memory) epochRows(b *batch) (out []epochRow) {
	for n := range b.epochs {
		row := epochRow{number: n}
		if e := t.epochs[n]; e != nil {
			row = epochRow{n, true, e.id, e.kind, e.request, e.reply}
		}
		out = append(out, row)
	}
	return out
}

// markClean marks what was written as clean, unless it changed meanwhile.
func (t *Tree) markClean(r *rows) {
	b := r.batch
	if n := len(r.segments); n > 0 && b.ops > 0 {
		t.indexedSegment = r.segments[n-1].Ordinal
	}
	for _, in := range b.inodes {
		if in.stage != b.stage {
			continue
		}
		in.stage = clean
		if in.freed {
			t.inodes.dropCached(in)
			t.inodes.drop(in)
		}
	}
	for _, k := range b.entries {
		d := k.dir.dir
		e, ok := d.entries[k.name]
		if !ok || e.stage != b.stage {
			continue
		}
		d.dirty--
		if e.ino == 0 {
			delete(d.entries, k.name)
			t.inodes.entries--
			continue
		}
		e.stage = clean
		d.entries[k.name] = e
	}
	for _, k := range b.xattrs {
		if k.in.extra == nil {
			continue
		}
		x, ok := k.in.extra.xattrs[k.name]
		if !ok || x.stage != b.stage {
			continue
		}
		if x.gone {
			delete(k.in.extra.xattrs, k.name)
			t.countValues(k.in, -x.held(k.name))
			continue
		}
		x.stage = clean
		k.in.extra.xattrs[k.name] = x
	}
	if len(t.writers) > 4096 && len(t.batch.writers) == 0 {
		clear(t.writers) // the index has them all
	}
	t.inodes.tidyAgain()
}

// putBack puts a batch that could not be written before the running one, so
// that the next attempt writes both.
func (t *Tree) putBack(r *rows) {
	b, n := r.batch, t.batch
	n.ops += b.ops
	n.bytes += b.bytes
	for _, in := range b.inodes {
		if in.stage == b.stage {
			n.dirty(in)
		}
	}
	for _, k := range b.entries {
		if e, ok := k.dir.dir.entries[k.name]; ok && e.stage == b.stage {
			e.stage = n.stage
			k.dir.dir.entries[k.name] = e
			n.entries = append(n.entries, k)
		}
	}
	for k := range b.extents {
		n.extents[k] = struct{}{}
	}
	for _, k := range b.xattrs {
		if k.in.extra == nil {
			continue
		}
		if x, ok := k.in.extra.xattrs[k.name]; ok && x.stage == b.stage {
			x.stage = n.stage
			k.in.extra.xattrs[k.name] = x
			n.xattrs = append(n.xattrs, k)
		}
	}
	for k := range b.epochs {
		n.epochs[k] = struct{}{}
	}
	n.dirs = append(b.dirs, n.dirs...)
	n.writers = append(b.writers, n.writers...)
	n.versions = append(b.versions, n.versions...)
	n.past.before(&b.past)
	n.named = append(b.named, n.named...)
	n.checkpoints = append(b.checkpoints, n.checkpoints...)
	n.adopted = append(b.adopted, n.adopted...)
	n.dropped = append(b.dropped, n.dropped...)
	if n.lineage == nil {
		n.lineage = b.lineage
	}
	n.twins = append(b.twins, n.twins...)
	n.merged = append(b.merged, n.merged...)
}

// flusher writes batches in the background until ctx ends.
func (t *Tree) flusher(ctx context.Context) {
	timer := time.NewTimer(t.opt.FlushInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		if !t.waitForBatch(ctx, timer) {
			return
		}
		stop := t.syncPeriodically()
		err := t.flush()
		if err == nil {
			err = t.collect()
		}
		stop()
		if err != nil {
			t.log.Error("index cannot be written; trying again", "error", err)
			timer.Reset(time.Second)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			t.kick()
		}
	}
}

// syncPeriodically syncs the journal twice a second until it is stopped. A flush begins
// with a sync; this is for what is written while one takes long, so that
// everything is durable a second later, also where nothing asks for it.
func (t *Tree) syncPeriodically() (stop func()) {
	tick, over := time.NewTicker(500*time.Millisecond), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				t.journal.Sync(t.journal.End()) // an error comes to the next flush, too
			}
		}
	})
	return func() {
		tick.Stop()
		close(over)
		done.Wait()
	}
}

// waitForBatch waits until a batch is worth writing: after FlushInterval, or
// FlushOps operations, or when somebody waits for room.
func (t *Tree) waitForBatch(ctx context.Context, timer *time.Timer) bool {
	timer.Reset(t.opt.FlushInterval)
	for {
		t.mu.RLock()
		full := t.batch.ops >= t.opt.FlushOps || t.dirtyFull()
		t.mu.RUnlock()
		if full {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-t.wake:
		}
	}
}

// collect unlinks segments that no row refers to and that neither replay nor
// a repeated request needs. It decides by a commit that is synced first, so
// that power loss cannot bring back an index that still needs them.
func (t *Tree) collect() error {
	segs := t.journal.Segments()
	t.mu.Lock()
	if len(segs) < 2 || t.closed || segs[len(segs)-1].Ordinal == t.collected {
		t.mu.Unlock()
		return nil
	}
	t.collected = segs[len(segs)-1].Ordinal
	t.mu.Unlock()
	t.packer.kick()
	return t.collectNow(false)
}

// collectNow is collect, even if no segment is new. With force it does not ask
// whether the archive has a copy of the index.
func (t *Tree) collectNow(force bool) error {
	t.flushMu.Lock() // no commit in between, and no other collector
	defer t.flushMu.Unlock()
	if t.held > 0 {
		t.mu.Lock()
		t.collected = 0 // look again then
		t.mu.Unlock()
		return nil
	}
	segs := t.journal.Segments()
	dead, packed, err := t.dead(segs, force)
	if err != nil || len(dead) == 0 {
		return err
	}
	if err := t.indexSync.wait(); err != nil {
		return err
	}
	err = t.index.db.WriteSync(context.Background(), func(tx *db.Tx) error {
		return forgetSegments(tx, slices.DeleteFunc(slices.Clone(dead), func(n uint32) bool { return slices.Contains(packed, n) }))
	})
	if err == nil {
		err = t.fail("collect.unlink")
	}
	for _, n := range dead {
		if err == nil {
			err = t.journal.Remove(n)
		}
	}
	if err != nil {
		return fmt.Errorf("collect segments: %w", err)
	}
	return nil
}

// dead lists the segments that the committed index needs no more: what it
// does not refer to, nothing later can. Of them, it refers to those in packed,
// whose bytes the archive has. With an archive the records must be in its copy
// of the index as well, so that losing the index loses nothing, unless it is
// forced. It runs under flushMu.
func (t *Tree) dead(segs []journal.Segment, force bool) (dead, packed []uint32, err error) {
	err = t.index.db.ReadNow(context.Background(), func(tx *db.Tx) error {
		needed, err := neededBy(tx)
		if t.opt.Archive != nil && !force {
			needed = min(needed, t.packer.bound())
		}
		for _, s := range segs {
			if err != nil || !s.Sealed || s.Ordinal >= needed {
				break
			}
			used := false
			err = tx.Query(usedExtents+" LIMIT 1", []any{int64(s.Ordinal)}, func(*db.Row) error {
				used = true
				return nil
			})
			if used && t.packer.part(s.Ordinal) != "" {
				packed = append(packed, s.Ordinal)
			} else if used {
				continue
			}
			dead = append(dead, s.Ordinal)
		}
		return err
	})
	return dead, packed, err
}
