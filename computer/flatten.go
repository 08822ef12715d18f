package computer

import (
	"context"
	"fmt"
	"slices"

	"holt"
	"holt/db"
)

// flattening keeps chains of root disks short: each snapshot, fork, pause and
// resume adds one. A disk that is needed by nothing but one that is laid over it
// is merged with that one, while no computer that has them beneath it runs. What is
// beneath a moment in the archive, or on its way there, stays as it is there.
// Whoever starts one meanwhile ends the merge, which is begun anew when one rests again.
type flattening struct{ s *Store }

// lone are pairs of disks, one over another which nothing else needs, the lowest first.
const lone = `SELECT over.id, under.id, under.parent FROM disk over JOIN disk under ON under.id = over.parent
	WHERE under.id NOT IN (` + stoodOn + `)
	AND (SELECT count(*) FROM disk other WHERE other.parent = under.id) = 1
	ORDER BY over.created, over.id`

// above are a disk and all that are laid over it.
const above = `WITH RECURSIVE above(id) AS (SELECT ?1 UNION SELECT disk.id FROM disk JOIN above ON disk.parent = above.id)
`

// usersOf are the computers whose machines would have a disk open.
const usersOf = above + `SELECT id FROM computer WHERE disk IN above UNION SELECT computer FROM moment WHERE disk IN above OR next IN above
	UNION SELECT computer FROM restore WHERE disk IN above OR before IN above ORDER BY 1`

// archivedOver are the moments over a disk that the archive has, or gets if there is one.
const archivedOver = above + `SELECT 1 FROM moment WHERE (disk IN above OR next IN above) AND (stored OR kind = 'snapshot' AND ?2) LIMIT 1`

// merge is one disk that takes in the one beneath it.
type merge struct {
	over, under, parent holt.DiskID
}

// run merges whenever a computer may have come to rest, until ctx ends.
func (f flattening) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.all(ctx)
		select {
		case <-f.s.seats.idle:
		case <-ctx.Done():
		}
	}
}

// all merges what can be merged now.
func (f flattening) all(ctx context.Context) {
	for again := true; again && ctx.Err() == nil; {
		pairs, err := f.find(ctx)
		again = false
		for _, m := range pairs {
			var done bool
			if done, err = f.merge(ctx, m); err != nil {
				break
			}
			again = again || done // the next may lie over it
		}
		if err != nil && ctx.Err() == nil {
			f.s.log.Warn("merge root disks", "err", err) // tried again when a verb has ended
			return
		}
	}
}

func (f flattening) find(ctx context.Context) (pairs []merge, err error) {
	err = read(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		return tx.Query(lone, nil, func(row *db.Row) error {
			pairs = append(pairs, merge{holt.DiskID(row.Text(0)), holt.DiskID(row.Text(1)), holt.DiskID(row.Text(2))})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look for root disks to merge: %w", err)
	}
	// Of a chain only the lowest pair: the others change with it.
	var lowest []merge
	changes := map[holt.DiskID]bool{}
	for _, m := range pairs {
		if !changes[m.under] && !changes[m.over] {
			lowest = append(lowest, m)
		}
		changes[m.over], changes[m.under] = true, true
	}
	return lowest, nil
}

// merge merges one pair, unless a computer that needs it runs, or is about to.
func (f flattening) merge(ctx context.Context, m merge) (done bool, err error) {
	k := f.s.disks
	if !k.still.TryLock() {
		return false, nil // whoever has it stores disks, and says when it has done so
	}
	defer k.still.Unlock()
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	free, err := f.claim(bounded, m, cancel)
	if err != nil || free == nil {
		return false, err
	}
	defer free()
	before := allocated(k.path(m.over)) + allocated(k.path(m.under))
	if err := f.s.cfg.point("flatten/disk"); err != nil {
		return false, err
	}
	if err := f.s.cfg.Engine.MergeDisk(bounded, k.path(m.over), k.path(m.under)); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return false, nil // somebody wants to go on
		}
		return false, err
	}
	if err := f.s.cfg.point("flatten/row"); err != nil {
		return false, err
	}
	for _, id := range []holt.DiskID{m.over, m.under} {
		k.vault.drop(ctx, string(id)) // as they were for a moment that is gone
	}
	err = writeSync(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE disk SET parent = ? WHERE id = ?`, m.parent, m.over); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM disk WHERE id = ?`, m.under)
	})
	if err == nil {
		f.s.log.Info("root disks merged", "disk", m.over, "freed", before-allocated(k.path(m.over)))
	}
	return err == nil, err
}

// claim keeps the computers that have a disk beneath them from starting, until
// free is called; nil: one runs, or a verb is at work on it.
func (f flattening) claim(ctx context.Context, m merge, yield func()) (free func(), err error) {
	var held []func()
	free = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	archived, err := f.s.disks.list(ctx, archivedOver, m.over, f.s.cfg.Archive != nil)
	if err != nil || len(archived) > 0 {
		return nil, err
	}
	users, err := f.users(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, id := range users {
		unlock, ok := f.s.seats.tryIdle(id, yield)
		if !ok {
			free()
			return nil, nil
		}
		held = append(held, unlock)
	}
	// One that was being forked from them meanwhile is there now, or cannot come any more.
	now, err := f.users(ctx, m)
	if err != nil || !slices.Equal(now, users) {
		free()
		return nil, err
	}
	return free, nil
}

func (f flattening) users(ctx context.Context, m merge) (ids []holt.ComputerID, err error) {
	err = read(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		return tx.Query(usersOf, []any{m.over}, func(row *db.Row) error {
			ids = append(ids, holt.ComputerID(row.Text(0)))
			return nil
		})
	})
	return ids, err
}
