package workspace

import (
	"context"
	"slices"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Retention says which automatic checkpoints stay: those before and after runs, stretches
// of work in terminals, restores and undos. What somebody named, or what holds
// mounts, stays until somebody deletes it.
type Retention struct {
	Last int // the newest so many of stretches, and as many of all others: a guest can make as many stretches as it has time for
	Days int // and the newest of each of so many days before now, by UTC
}

// mostDropped bounds how many checkpoints one Thin removes, so that what comes
// after it never waits for long.
const mostDropped = 100

// Prune removes the automatic checkpoints that keep does not keep, oldest
// first, and returns how many those were. A run beside a removed one can no
// longer be undone exactly.
func (w *Workspace) Prune(ctx context.Context, keep Retention) (removed int, err error) {
	all := w.Checkpoints()
	runs, err := w.aroundRuns(ctx, keep, all)
	if err != nil {
		return 0, err
	}
	for _, id := range keep.surplus(all, runs, w.tree.opt.Now()) {
		if removed == mostDropped || ctx.Err() != nil {
			break
		}
		if err := w.tree.drop(id); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// ofSession tells whether it was taken for a stretch of work in a terminal.
func (c Checkpoint) ofSession() bool {
	_, err := holt.ParseStretchID(c.Run)
	return err == nil
}

// aroundRuns returns the generations that end where the window of a run begins or
// ends (see [Workspace.Receipt]): a stretch that ended just before a run, or began while it
// ran, may have taken the checkpoint there. It looks only if some of a stretch may go.
func (w *Workspace) aroundRuns(ctx context.Context, keep Retention, all []Checkpoint) (map[uint64]bool, error) {
	of := slices.DeleteFunc(slices.Clone(all), func(c Checkpoint) bool { return !c.ofSession() })
	if len(of) <= keep.Last {
		return nil, nil
	}
	if err := w.Flush(); err != nil {
		return nil, diskError("thin checkpoints", err)
	}
	beside := map[uint64]bool{}
	err := w.tree.readBriefly(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT min(v.generation), max(v.generation) FROM version v JOIN writer w ON w.id = v.writer"+
			" WHERE v.generation >= ?1 AND w.kind = 'run' GROUP BY w.run", []any{int64(of[0].Generation)}, func(r *db.Row) error {
			beside[uint64(r.Int64(0))-1], beside[uint64(r.Int64(1))] = true, true
			return nil
		})
	})
	return beside, err
}

// surplus returns what goes, oldest first. A checkpoint of a stretch that is also
// beside a run is one of runs.
func (keep Retention) surplus(all []Checkpoint, besideRuns map[uint64]bool, now time.Time) (gone []CheckpointID) {
	auto := slices.DeleteFunc(all, func(c Checkpoint) bool { return !c.Auto || c.Mounts })
	day := func(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
	first := day(now).AddDate(0, 0, -max(0, keep.Days))
	stretches, others := keep.Last, keep.Last
	for i, c := range slices.Backward(auto) {
		left := &others
		if c.ofSession() && !besideRuns[c.Generation] {
			left = &stretches
		}
		if *left--; *left >= 0 {
			continue
		}
		newest := i+1 == len(auto) || !day(auto[i+1].CreatedAt).Equal(day(c.CreatedAt))
		if !newest || !day(c.CreatedAt).After(first) {
			gone = append(gone, c.ID)
		}
	}
	slices.Reverse(gone)
	return gone
}
