package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holt"
	archive "holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// Packed says what packing did.
type Packed struct {
	Segments int   // whose bytes went to the archive
	Bytes    int64 // of them
	Stored   int64 // by which the packs grew
	Unlinked int   // segments that are gone from the disk
}

// packer moves sealed segments of a workspace to the archive, and knows which of them the archive has.
type packer struct {
	t       *Tree
	running sync.Mutex    // one packs at a time; before flushMu
	wake    chan struct{} // there may be something to pack; capacity 1
	full    atomic.Bool   // an append found the disk full: no segments are kept back

	mu        sync.Mutex        // a leaf: guards what follows
	parts     map[uint32]string // by ordinal: segments whose bytes the archive has
	floor     uint32            // its copy of the index needs no records of segments before; 0: there is none
	adoptions []*adoption       // that the index may not have yet
	next      uint32            // ordinal of the next adopted segment, if it is greater than the journal says
}

// part returns the archive's name for a segment; "" if the archive does not have it.
func (k *packer) part(ordinal uint32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.parts[ordinal]
}

// bound returns floor.
func (k *packer) bound() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.floor
}

func (k *packer) set(ordinal uint32, part string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.parts == nil {
		k.parts = map[uint32]string{}
	}
	k.parts[ordinal] = part
}

// kick wakes the packer.
func (k *packer) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// findPacked asks the archive what it has of this workspace.
func (k *packer) findPacked(ctx context.Context) error {
	if k.t.opt.Archive == nil {
		return nil
	}
	names, err := k.t.opt.Archive.Names(ctx, k.t.opt.Space)
	if err != nil {
		return err
	}
	for _, name := range names {
		if n, ok := parseIndexPart(name); ok {
			k.floor = max(k.floor, n)
		}
	}
	return k.t.index.db.ReadNow(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT num, id FROM segment", nil, func(r *db.Row) error {
			if part := journal.ID(r.Bytes(1)).String(); slices.Contains(names, part) {
				k.set(uint32(r.Int64(0)), part)
			}
			return nil
		})
	})
}

// Pack moves the bytes of sealed segments to the archive, but for the newest
// keep of them, and unlinks the segments. What is read from them afterwards
// comes from packs; no row changes, since the archive has the bytes under the
// segment's id and their offsets. Before a segment goes, the archive also gets
// a copy of the index that needs none of its records; only when the local disk is
// full those without live bytes go at once. One workspace of an archive packs at a time.
// Conflict without an archive.
func (w *Workspace) Pack(ctx context.Context, keep int) (p Packed, err error) {
	t := w.tree
	if t.opt.Archive == nil {
		return p, holt.Errorf(holt.Conflict, "pack workspace: it has no archive")
	}
	end, err := t.opt.Archive.Turn(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	t.packer.running.Lock()
	defer t.packer.running.Unlock()
	before := len(t.journal.Segments())
	adopted := t.packer.settled()
	if err = w.Flush(); err == nil {
		t.packer.indexed(adopted)
		err = t.packer.pack(ctx, keep, &p)
	}
	if err != nil {
		err = diskError("pack workspace", err)
	}
	if holt.CodeOf(err) == holt.OutOfSpace && !errors.Is(err, archive.ErrFarFull) {
		t.log.Warn("disk is full: segments without live bytes go before the archive has a copy of the index")
		err = errors.Join(err, t.collectNow(true))
	}
	p.Unlinked = max(0, before-len(t.journal.Segments()))
	return p, err
}

// PackWaiting packs what [Stats.Waiting] counts, as the workspace does by itself
// when it stays open.
func (w *Workspace) PackWaiting(ctx context.Context) (Packed, error) {
	if w.Stat().Waiting == 0 {
		return Packed{}, nil
	}
	return w.Pack(ctx, max(0, w.tree.opt.KeepSegments))
}

func (k *packer) pack(ctx context.Context, keep int, p *Packed) error {
	var sealed []journal.Segment
	if err := k.t.indexSync.wait(); err != nil {
		return err
	}
	needed, err := k.needed(ctx)
	if err != nil {
		return err
	}
	for _, s := range k.t.journal.Segments() {
		if s.Sealed && s.Ordinal < needed {
			sealed = append(sealed, s)
		}
	}
	sealed = sealed[:max(0, len(sealed)-keep)]
	for _, s := range sealed {
		if k.part(s.Ordinal) != "" {
			continue
		}
		if err := k.packSegment(ctx, s, p); err != nil {
			return fmt.Errorf("pack segment %s: %w", s.ID, err)
		}
	}
	if len(sealed) > 0 {
		if err := k.copyIndex(ctx); err != nil {
			return fmt.Errorf("copy index to the archive: %w", err)
		}
	}
	if err := k.t.collectNow(false); err != nil {
		return err
	}
	if err := k.forget(ctx); err != nil {
		return err
	}
	return k.narrow(ctx)
}

// needed returns the ordinal of the first segment whose records the committed
// index still needs: to continue from, or to answer a request that is repeated.
func (k *packer) needed(ctx context.Context) (n uint32, err error) {
	err = k.t.index.db.ReadNow(ctx, func(tx *db.Tx) error { n, err = neededBy(tx); return err })
	return n, err
}

func neededBy(tx *db.Tx) (uint32, error) {
	n := ^uint32(0)
	err := tx.Query("SELECT value FROM meta WHERE key IN ('applied', 'last', 'replies')", nil, func(r *db.Row) error {
		n = min(n, journal.Pos(r.Int64(0)).Segment())
		return nil
	})
	return n, err
}

// usedExtents are the rows, of the present and the past, that refer to bytes of segment ?1.
const usedExtents = "SELECT ino, off, len, place, whole, delta FROM extent WHERE segment = ?1" +
	" UNION ALL SELECT ino, off, len, place, whole, delta FROM past_extent WHERE segment = ?1"

// packSegment gives the archive the bytes of a segment that rows refer to:
// later rows can only refer to some of them. It reads in the order of the
// segment, where bytes of one file mostly follow each other.
func (k *packer) packSegment(ctx context.Context, s journal.Segment, p *Packed) error {
	w := k.t.opt.Archive.Create(k.t.opt.Space, s.ID.String())
	defer w.Abort()
	if err := k.t.fail("pack.segment"); err != nil {
		return err
	}
	var file, next, done int64 // the file, where to continue, and up to where the segment is done
	var buf []byte
	err := k.t.index.db.ReadNow(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT * FROM ("+usedExtents+") ORDER BY place + delta", []any{int64(s.Ordinal)}, func(r *db.Row) error {
			ino, off, n, place, whole, delta := r.Int64(0), r.Int64(1), r.Int64(2), r.Int64(3), r.Int64(4), r.Int64(5)
			if skip := done - (place + delta); skip > 0 { // several rows share bytes
				off, n, delta = off+skip, n-skip, delta+skip
			}
			if n <= 0 {
				return nil
			}
			if ino != file || off != next {
				if err := w.EndRun(ctx); err != nil {
					return err
				}
			}
			buf = slices.Grow(buf[:0], int(n))[:n]
			if err := k.t.journal.ReadData(journal.Data{Segment: s.Ordinal, Off: place, Len: int(whole)}, int(delta), buf); err != nil {
				return err
			}
			file, next, done = ino, off+n, place+delta+n
			return w.Append(ctx, place+delta, buf)
		})
	})
	if err != nil {
		return err
	}
	did, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	k.set(s.Ordinal, s.ID.String())
	p.Segments, p.Bytes, p.Stored = p.Segments+1, p.Bytes+did.Bytes, p.Stored+did.Stored
	return k.t.fail("pack.packed")
}

// forget removes from the archive the segments that no row refers to.
func (k *packer) forget(ctx context.Context) error {
	there := map[uint32]bool{}
	for _, s := range k.t.journal.Segments() {
		there[s.Ordinal] = true
	}
	var gone []uint32
	// Those that no row of table segment names any more, either. They are listed first: what is adopted meanwhile has a name before.
	parts, err := k.t.opt.Archive.Names(ctx, k.t.opt.Space)
	if err != nil {
		return err
	}
	known, named := k.known()
	parts = slices.DeleteFunc(parts, func(n string) bool { return strings.HasPrefix(n, indexPart) || named[n] })
	err = k.t.index.db.ReadNow(ctx, func(tx *db.Tx) error {
		for ordinal, part := range known {
			used := there[ordinal] // first it goes from the disk
			err := tx.Query(usedExtents+" LIMIT 1", []any{int64(ordinal)}, func(*db.Row) error { used = true; return nil })
			if err != nil {
				return err
			}
			if !used {
				gone, parts = append(gone, ordinal), append(parts, part)
			}
		}
		return nil
	})
	if err != nil || len(parts) == 0 {
		return err
	}
	// Synced: power loss must not bring back an index that refers to them.
	err = k.t.index.db.WriteSync(ctx, func(tx *db.Tx) error { return forgetSegments(tx, gone) })
	if err == nil {
		err = k.t.fail("pack.forget")
	}
	if err == nil {
		err = k.t.opt.Archive.Remove(ctx, k.t.opt.Space, parts...)
	}
	if err != nil {
		return fmt.Errorf("remove what is packed and not used: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ordinal := range gone {
		delete(k.parts, ordinal)
	}
	return nil
}

// narrow lets go of the bytes of packed segments that no row refers to, where
// they are most. An index that is older after power loss still is followed by
// the records that made it this one, so it need not be synced.
func (k *packer) narrow(ctx context.Context) error {
	parts, err := k.t.opt.Archive.Parts(ctx, k.t.opt.Space)
	if err != nil {
		return err
	}
	known, _ := k.known()
	bytes := map[string]int64{}
	for _, p := range parts {
		bytes[p.Name] = p.Bytes
	}
	for ordinal, name := range known {
		if _, there := bytes[name]; !there {
			continue
		}
		var live []archive.Range
		var sum int64
		err := k.t.index.db.ReadNow(ctx, func(tx *db.Tx) error {
			return tx.Query("SELECT place + delta, len FROM ("+usedExtents+") ORDER BY place + delta", []any{int64(ordinal)}, func(r *db.Row) error {
				off, end := r.Int64(0), r.Int64(0)+r.Int64(1)
				if n := len(live); n > 0 {
					off = max(off, live[n-1].Off+live[n-1].Len)
				}
				if off < end {
					live, sum = append(live, archive.Range{Off: off, Len: end - off}), sum+end-off
				}
				return nil
			})
		})
		if err == nil && sum < bytes[name]/2 {
			err = k.t.opt.Archive.Narrow(ctx, k.t.opt.Space, name, live)
		}
		if err != nil {
			return fmt.Errorf("narrow segment %s: %w", name, err)
		}
	}
	return nil
}

func forgetSegments(tx *db.Tx, ordinals []uint32) error {
	for _, n := range ordinals {
		if err := tx.Exec("DELETE FROM segment WHERE num = ?", int64(n)); err != nil {
			return err
		}
	}
	return nil
}

// readData fills p with bytes of a record's data, from the journal or, once
// the segment is packed and gone, from the archive. It fails as
// [journal.Journal.ReadData] does, or with what the archive says.
func (t *Tree) readData(d journal.Data, delta int, p []byte) error {
	err := t.journal.ReadData(d, delta, p)
	if err == nil || t.opt.Archive == nil || !errors.Is(err, journal.ErrGone) {
		return err
	}
	part := t.packer.part(d.Segment)
	if part == "" {
		return err
	}
	far := t.opt.Archive.ReadAt(context.Background(), t.opt.Space, part, p, d.Off+int64(delta))
	if holt.CodeOf(far) == holt.NotFound {
		return fmt.Errorf("%w, and from the archive: %w", err, far)
	}
	return far
}

// packer packs whenever a segment was sealed or the disk is full, and what an
// earlier process left, until ctx ends.
func (w *Workspace) packer(ctx context.Context) {
	t := w.tree
	again := time.NewTimer(0)
	defer again.Stop()
	for sealed := t.packer.wake; ; {
		select {
		case <-ctx.Done():
			return
		case <-sealed:
		case <-again.C:
		}
		keep := t.opt.KeepSegments
		if t.packer.full.Swap(false) {
			keep = 0
		}
		sealed = t.packer.wake
		if w.Stat().Waiting == 0 && keep > 0 {
			continue
		}
		p, err := w.Pack(ctx, keep)
		if err != nil && ctx.Err() == nil {
			t.log.Error("segments cannot be packed", "again_in", t.opt.PackRetry, "error", err)
			sealed = nil // until then
			again.Reset(t.opt.PackRetry)
		} else if p.Unlinked > 0 {
			t.log.Info("segments packed", "segments", p.Segments, "bytes", p.Bytes, "stored", p.Stored, "unlinked", p.Unlinked)
		}
	}
}
