package chunk

import (
	"context"
	"errors"
	"time"

	"holt"
	"holt/internal/store/db"
)

// sparse lists the packs to rewrite: those that are mostly garbage, and small
// ones if together they fill a pack.
func (a *Archive) sparse(packs []surveyed) (sparse []surveyed) {
	var small []surveyed
	var sum int64
	for _, p := range packs {
		switch {
		case p.live == 0:
		case p.live < (p.size-headLen-footLen)/2:
			sparse = append(sparse, p)
			sum += p.live
		case p.size < int64(a.opt.packBytes)/4:
			small = append(small, p)
			sum += p.live
		}
	}
	if sum >= int64(a.opt.packBytes) {
		sparse = append(sparse, small...)
	}
	return sparse
}

// repack copies the live chunks of packs to new ones, in stored form, and removes the old ones.
func (s *sweeper) repack(ctx context.Context, packs []surveyed, c *Collected) error {
	a := s.a
	var b builder
	var drained []surveyed
	pace := pacer{a: a}
	flush := func() error {
		if len(drained) == 0 {
			return nil
		}
		into := packed{id: b.id, entries: b.entries}
		defer a.land([]packed{into})
		if err := a.putPack(ctx, &b); err != nil {
			return errors.Join(err, a.giveBack([]packed{into}))
		}
		into.size = int64(len(b.b))
		gone, err := s.sweep(ctx, drained, into)
		if gone {
			c.Repacked, c.Packs, c.Freed = c.Repacked+len(drained), c.Packs+len(drained), c.Freed-into.size
			for _, p := range drained {
				c.Freed += p.size
			}
		}
		b.b, drained = b.b[:0], nil
		return err
	}
	for _, p := range packs {
		if int64(len(b.b))+p.live > int64(a.opt.packBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(b.b) == 0 {
			b.begin()
		}
		err := a.drain(ctx, p, s.horizon, &b, &pace)
		if holt.CodeOf(err) == holt.Corrupt {
			a.log.Error("pack is damaged and is not rewritten", "pack", p.id.String(), "error", err)
			continue
		}
		if err != nil {
			return err
		}
		drained = append(drained, p)
	}
	return flush()
}

// drain copies all live chunks of a pack to b, or none.
func (a *Archive) drain(ctx context.Context, p surveyed, horizon time.Time, b *builder, pace *pacer) error {
	var places []place
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT chunk.id, off, stored, length, sum, pack.id FROM chunk JOIN pack ON pack.n = chunk.pack"+
			" WHERE pack = ? AND (freed IS NULL OR freed > ?) ORDER BY off", []any{p.number, horizon.UnixNano()}, func(r *db.Row) error {
			places = append(places, placeOf(r, 0))
			return nil
		})
	})
	bytes, entries := len(b.b), len(b.entries)
	for _, at := range places {
		if err != nil {
			break
		}
		var stored []byte
		if stored, err = readStored(ctx, a.store, at.pack, at.entry); err == nil {
			b.b = append(b.b, stored...)
			b.close(at.id, at.length)
			err = pace.did(ctx, len(stored))
		}
	}
	if err != nil {
		b.b, b.entries = b.b[:bytes], b.entries[:entries]
	}
	return err
}
