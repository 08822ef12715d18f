package chunk

import (
	"context"
	"time"

	"holt"
	"holt/db"
)

// Collected says what a collection did.
type Collected struct {
	Packs    int   // removed
	Repacked int   // of them, those whose live chunks were moved first
	Freed    int64 // bytes by which the store shrinks
}

// Collect removes what no part of any space has needed since horizon: packs
// without such chunks, and those that are mostly garbage after moving what is
// live. It never removes what is reachable, wherever it is interrupted, and
// takes in first what crashes left in the store.
func (a *Archive) Collect(ctx context.Context, horizon time.Time) (c Collected, err error) {
	defer func() {
		if err != nil {
			err = holt.Errorf(holt.CodeOf(err), "collect garbage: %w", err)
		}
	}()
	a.change.Lock()
	defer a.change.Unlock()
	// What refers to chunks of packs that go must itself be gone first.
	if err := a.clear(ctx); err != nil {
		return c, err
	}
	if err := a.reconcile(ctx); err != nil {
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
	for _, p := range packs {
		if p.live > 0 {
			continue
		}
		gone, err := a.sweep(ctx, []surveyed{p}, packed{})
		if err != nil {
			return c, err
		}
		if gone {
			c.Packs, c.Freed = c.Packs+1, c.Freed+p.size
		}
	}
	if err := a.repack(ctx, a.sparse(packs), horizon, &c); err != nil {
		return c, err
	}
	return c, a.clear(ctx)
}

// mark notes since when chunks are garbage: the first collection that finds
// them so.
func (a *Archive) mark(ctx context.Context) error {
	if err := a.fail("gc.mark"); err != nil {
		return err
	}
	return a.index.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec("UPDATE chunk SET freed = NULL WHERE freed IS NOT NULL AND EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.n)"); err != nil {
			return err
		}
		return tx.Exec("UPDATE chunk SET freed = ? WHERE freed IS NULL AND NOT EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.n)", a.opt.Now().UnixNano())
	})
}

// surveyed is a pack and how much of it is live.
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

// sweep takes packs out of the index, after moving to pack into what is in
// it. Nothing happens if a writer counts on a chunk that would be lost.
func (a *Archive) sweep(ctx context.Context, packs []surveyed, into packed) (gone bool, err error) {
	if err := a.fail("gc.sweep"); err != nil {
		return false, err
	}
	a.mu.Lock() // from looking at what is pinned to the commit: nobody pins in between
	defer a.mu.Unlock()
	moved := make(map[ID]struct{}, len(into.entries))
	for _, e := range into.entries {
		moved[e.id] = struct{}{}
	}
	gone = true
	err = a.index.WriteSync(ctx, func(tx *db.Tx) error {
		for _, p := range packs {
			err := tx.Query("SELECT id FROM chunk WHERE pack = ?", []any{p.number}, func(r *db.Row) error {
				id := ID(r.Bytes(0))
				_, kept := moved[id]
				if a.pinned[id] > 0 && !kept {
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

// replace makes a pack the place of chunks that were elsewhere.
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
