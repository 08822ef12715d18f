package computer

import (
	"context"
	"fmt"
	"os"
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
const usersOf = above + `SELECT id, state FROM computer WHERE disk IN above
	OR id IN (SELECT computer FROM moment WHERE disk IN above OR next IN above)
	OR id IN (SELECT computer FROM restore WHERE disk IN above OR before IN above) ORDER BY 1`

// archivedOver are the moments over a disk that the archive has, or gets if there is one.
const archivedOver = above + `SELECT 1 FROM moment WHERE (disk IN above OR next IN above) AND (stored OR kind = 'snapshot' AND ?2) LIMIT 1`

// merge is one disk that takes in the one beneath it.
type merge struct {
	over, under, parent holt.DiskID
}

// settle writes the rows of merges that were done when a daemon ended. No computer
// has changed since.
func (f flattening) settle(ctx context.Context) error {
	pairs, err := f.list(ctx)
	if err != nil {
		return err
	}
	k := f.s.disks
	for _, m := range pairs {
		base, err := f.s.cfg.Engine.DiskBase(ctx, k.path(m.over))
		if err != nil {
			continue // nobody can tell
		}
		lies, err := os.Stat(base.Path)
		under, lost := os.Stat(k.path(m.under))
		if err == nil && lost == nil && os.SameFile(lies, under) {
			continue // it is as its row says
		}
		if err = f.s.cfg.Engine.MergeDisk(ctx, k.path(m.over), k.path(m.under)); err == nil {
			err = f.record(ctx, m)
		}
		if err != nil {
			f.s.log.Warn("finish a merge of root disks", "disk", m.over, "err", err)
		}
	}
	return nil
}

// run merges whenever a computer may have come to rest, until ctx ends.
func (f flattening) run(ctx context.Context) {
	failed := map[merge]string{}
	for ctx.Err() == nil {
		f.all(ctx, failed)
		select {
		case <-f.s.seats.idle:
		case <-ctx.Done():
		}
	}
}

// all merges what can be merged now. What cannot is said once, and tried again
// when a verb has ended.
func (f flattening) all(ctx context.Context, failed map[merge]string) {
	for again := true; again && ctx.Err() == nil; {
		pairs, err := f.find(ctx)
		if err != nil {
			f.s.log.Warn("merge root disks", "err", err)
		}
		again = false
		for _, m := range pairs {
			done, err := f.merge(ctx, m)
			again = again || done // the next may lie over it
			if err != nil && ctx.Err() == nil && failed[m] != err.Error() {
				failed[m] = err.Error()
				f.s.log.Warn("merge root disks", "disk", m.over, "under", m.under, "err", err)
			}
		}
	}
}

// list returns the pairs that may be merged, the lowest first.
func (f flattening) list(ctx context.Context) (pairs []merge, err error) {
	err = read(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		return tx.Query(lone, nil, func(row *db.Row) error {
			pairs = append(pairs, merge{holt.DiskID(row.Text(0)), holt.DiskID(row.Text(1)), holt.DiskID(row.Text(2))})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look for root disks to merge: %w", err)
	}
	return pairs, nil
}

// find returns of a chain only the lowest pair: the others change with it.
func (f flattening) find(ctx context.Context) (lowest []merge, err error) {
	pairs, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
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
	if err := f.record(context.WithoutCancel(ctx), m); err != nil {
		return false, err
	}
	f.s.log.Info("root disks merged", "disk", m.over, "freed", before-allocated(k.path(m.over)))
	return true, nil
}

// record writes down that a merge is done. What the archive has of the two disks
// was for a moment that is gone.
func (f flattening) record(ctx context.Context, m merge) error {
	for _, id := range []holt.DiskID{m.over, m.under} {
		if err := f.s.disks.vault.drop(ctx, string(id)); err != nil {
			return err // else it would be taken for what the merged one is
		}
	}
	return writeSync(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE disk SET parent = ? WHERE id = ?`, m.parent, m.over); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM disk WHERE id = ?`, m.under)
	})
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
	if err != nil || len(users) == 0 { // or it is about to be removed
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

// users returns the computers that would have a disk open; none if one of them
// may have a machine, whether this daemon knows it or not.
func (f flattening) users(ctx context.Context, m merge) (ids []holt.ComputerID, err error) {
	rest := true
	err = read(ctx, f.s.cfg.DB, func(tx *db.Tx) error {
		return tx.Query(usersOf, []any{m.over}, func(row *db.Row) error {
			ids = append(ids, holt.ComputerID(row.Text(0)))
			state := holt.ComputerState(row.Text(1))
			rest = rest && (state == holt.ComputerPaused || state == holt.ComputerStopped)
			return nil
		})
	})
	if !rest {
		ids = nil
	}
	return ids, err
}
