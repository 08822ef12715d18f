package workspace

import (
	"context"
	"slices"
	"time"
)

// Keep says which automatic checkpoints stay: those before and after runs,
// restores and undos. What somebody named, or what holds mounts, stays until
// somebody deletes it.
type Keep struct {
	Last int // the newest so many
	Days int // and the newest of each of so many days before now, by UTC
}

// mostDropped bounds how many checkpoints one Thin removes, so that what comes
// after it never waits for long.
const mostDropped = 100

// Thin removes the automatic checkpoints that keep does not keep, oldest
// first, and returns how many those were. A run beside a removed one can no
// longer be undone exactly.
func (w *Workspace) Thin(ctx context.Context, keep Keep) (removed int, err error) {
	for _, id := range keep.surplus(w.Checkpoints(), w.tree.opt.Now()) {
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

// surplus returns what goes, oldest first.
func (keep Keep) surplus(all []Checkpoint, now time.Time) (gone []CheckpointID) {
	auto := slices.DeleteFunc(all, func(c Checkpoint) bool { return !c.Auto || c.Mounts })
	old := auto[:max(0, len(auto)-max(0, keep.Last))]
	day := func(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
	first := day(now).AddDate(0, 0, -max(0, keep.Days))
	for i, c := range old {
		newest := i+1 == len(auto) || !day(auto[i+1].CreatedAt).Equal(day(c.CreatedAt))
		if !newest || !day(c.CreatedAt).After(first) {
			gone = append(gone, c.ID)
		}
	}
	return gone
}
