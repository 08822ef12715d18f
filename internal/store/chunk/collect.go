package chunk

import (
	"context"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Collected is the result of a collection.
type Collected struct {
	Packs    int   // removed
	Repacked int   // of those: packs whose live chunks were moved first
	Freed    int64 // bytes by which the store shrinks
}

// Collect removes packs that no part has needed since horizon, and packs that
// are mostly garbage after it moves their live chunks. It first adopts what
// crashes left in the store. It can be interrupted at any point without
// removing a reachable chunk. Changes of spaces continue meanwhile: it holds
// their lock only briefly.
func (a *Archive) Collect(ctx context.Context, horizon time.Time) (c Collected, err error) {
	defer func() {
		if err != nil {
			err = holt.Errorf(holt.CodeOf(err), "collect garbage: %w", err)
		}
	}()
	end, err := a.Turn(ctx)
	if err != nil {
		return c, err
	}
	defer end()
	torn := a.tornSoFar()
	// Objects that refer to chunks of a pack are removed before the pack.
	if err := a.clear(ctx); err != nil {
		return c, err
	}
	if err := a.reconcile(ctx, torn); err != nil {
		return c, err
	}
	if err := a.clear(ctx); err != nil {
		return c, err
	}
	if err := a.mark(ctx); err != nil {
		return c, err
	}
	packs, err := a.survey(ctx, horizon)
	if err != nil {
		return c, err
	}
	b := sweeper{a: a, horizon: horizon, torn: torn}
	for _, p := range packs {
		if p.live > 0 {
			continue
		}
		gone, err := b.sweep(ctx, []surveyed{p}, packed{})
		if err != nil {
			return c, err
		}
		if gone {
			c.Packs, c.Freed = c.Packs+1, c.Freed+p.size
		}
	}
	if err := b.repack(ctx, a.sparse(packs), &c); err != nil {
		return c, err
	}
	return c, a.clear(ctx)
}

// markAtOnce is the number of chunks in one transaction of mark. Other changes
// of the index wait for that transaction.
const markAtOnce = 5000

// mark records for each chunk since when it is garbage: since the first
// collection that found it unused.
func (a *Archive) mark(ctx context.Context) error {
	if err := a.fail("gc.mark"); err != nil {
		return err
	}
	var last int64
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT COALESCE(MAX(n), 0) FROM chunk", nil, func(r *db.Row) error { last = r.Int64(0); return nil })
	})
	const these, needed = " AND n BETWEEN ?1 AND ?2", "EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.n)"
	for n := int64(0); n <= last && err == nil; n += markAtOnce {
		err = a.index.Write(ctx, func(tx *db.Tx) error {
			err := tx.Exec("UPDATE chunk SET freed = NULL WHERE freed IS NOT NULL AND "+needed+these, n, n+markAtOnce-1)
			if err == nil {
				err = tx.Exec("UPDATE chunk SET freed = ?3 WHERE freed IS NULL AND NOT "+needed+these, n, n+markAtOnce-1, a.opt.Now().UnixNano())
			}
			return err
		})
		if err == nil && a.opt.Pace != nil {
			err = a.opt.Pace(ctx)
		}
	}
	return err
}

// surveyed is a pack and its number of live bytes.
type surveyed struct {
	number     int64
	id         PackID
	size, live int64 // bytes
}

func (a *Archive) survey(ctx context.Context, horizon time.Time) (packs []surveyed, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT pack.n, pack.id, pack.size, COALESCE(SUM(stored + ?2) FILTER (WHERE freed IS NULL OR freed > ?1), 0)"+
			" FROM pack LEFT JOIN chunk ON chunk.pack = pack.n GROUP BY pack.n", []any{horizon.UnixNano(), int64(entryLen)}, func(r *db.Row) error {
			packs = append(packs, surveyed{r.Int64(0), PackID(r.Bytes(1)), r.Int64(2), r.Int64(3)})
			return nil
		})
	})
	return packs, err
}

// sweeper removes packs for one collection.
type sweeper struct {
	a       *Archive
	horizon time.Time
	torn    int // [Archive.torn] before the store was reconciled
}

// sweep removes packs from the index, after moving their live chunks to the
// pack into. It does nothing and returns false if a chunk that would be lost is
// needed now or pinned by a writer, or if a change was torn since the store was
// reconciled: objects of that change may refer to any chunk.
func (s *sweeper) sweep(ctx context.Context, packs []surveyed, into packed) (gone bool, err error) {
	a := s.a
	if err := a.fail("gc.sweep"); err != nil {
		return false, err
	}
	moved := make(map[ID]struct{}, len(into.entries))
	for _, e := range into.entries {
		moved[e.id] = struct{}{}
	}
	a.mu.Lock() // held until the commit, so that no chunk is pinned in between
	defer a.mu.Unlock()
	gone = a.torn == s.torn
	if !gone {
		return false, nil
	}
	err = a.index.WriteSync(ctx, func(tx *db.Tx) error {
		for _, p := range packs {
			err := tx.Query("SELECT id, freed IS NULL OR freed > ?2 FROM chunk WHERE pack = ?1", []any{p.number, s.horizon.UnixNano()}, func(r *db.Row) error {
				id := ID(r.Bytes(0))
				if _, kept := moved[id]; !kept && (a.pinned[id] > 0 || r.Int64(1) != 0) {
					gone = false
				}
				return nil
			})
			if err != nil || !gone {
				return err
			}
		}
		if err := into.replace(tx); err != nil {
			return err
		}
		for _, p := range packs {
			for _, sql := range []string{"DELETE FROM chunk WHERE pack = ?", "DELETE FROM pack WHERE n = ?"} {
				if err := tx.Exec(sql, p.number); err != nil {
					return err
				}
			}
			if err := doom(tx, p.id.object(), rankPack); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = a.fail("gc.swept")
	}
	return gone && err == nil, err
}

// replace makes a pack the new place of its chunks.
func (p *packed) replace(tx *db.Tx) error {
	if len(p.entries) == 0 {
		return nil
	}
	if err := tx.Exec("INSERT INTO pack(id, size) VALUES (?, ?)", p.id[:], p.size); err != nil {
		return err
	}
	for _, e := range p.entries {
		if err := tx.Exec("UPDATE chunk SET pack = (SELECT n FROM pack WHERE id = ?2), off = ?3 WHERE id = ?1", e.id[:], p.id[:], e.off); err != nil {
			return err
		}
	}
	return nil
}
