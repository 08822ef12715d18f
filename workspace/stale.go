package workspace

import (
	"cmp"
	"context"
	"slices"
)

// StaleSince tells what a kernel may no longer believe that saw the workspace
// as it was at a checkpoint: a machine that was paused then and is to go on
// with the present, say. It costs what changed. Whoever made a change, it is told:
// a notice too many does no harm.
func (w *Workspace) StaleSince(ctx context.Context, ref string) (all []Stale, err error) {
	c, err := w.FindCheckpoint(ref)
	if err != nil {
		return nil, err
	}
	tell := func(s Stale) {
		if s.Ino < c.nextIno { // no kernel knew what was made since
			all = append(all, s)
		}
	}
	err = w.compare(ctx, ref, Live, func(d *delta) error {
		for _, list := range [][]placedEntry{d.gone, d.came} {
			for _, e := range list {
				tell(Stale{Ino: e.parent, Name: e.name})
				tell(Stale{Ino: e.parent})
				tell(Stale{Ino: e.ino})
			}
		}
		for ino := range d.inodes {
			tell(Stale{Ino: ino})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Stale) int { return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(all), err
}
