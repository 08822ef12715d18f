package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"holt"
)

// StaleSince tells what a kernel may no longer believe that saw the workspace
// as it was at a checkpoint: a machine that was paused then and is to continue
// with the present, say. It costs what changed. It includes changes that the kernel made itself:
// a notice too many does no harm.
func (w *Workspace) StaleSince(ctx context.Context, ref string) (all []Stale, err error) {
	c, err := w.FindCheckpoint(ref)
	if err != nil {
		return nil, err
	}
	all, err = w.staleBetween(ctx, ref, Live)
	return slices.DeleteFunc(all, func(s Stale) bool { return s.Ino >= c.nextIno }), err // no kernel knew what was made since
}

// staleBetween tells what differs between two states, each once.
func (w *Workspace) staleBetween(ctx context.Context, from, to string) (all []Stale, err error) {
	tell := func(s Stale) { all = append(all, s) }
	err = w.compare(ctx, from, to, func(d *delta) error {
		for _, list := range [][]placedEntry{d.gone, d.came} {
			for _, e := range list {
				tell(Stale{Ino: e.parent, Name: e.name})
				tell(Stale{Ino: e.parent})
				tell(Stale{Ino: e.ino})
			}
		}
		for ino := range d.inodes {
			all = append(all, staleInode(ino)...)
		}
		return nil
	})
	return distinct(all), err
}

// staleInode is what an inode makes stale that changes under its names: of a seed the
// listing of the top, too.
func staleInode(ino Ino) []Stale {
	if ino <= lastSeed && ino != Root {
		return []Stale{{Ino: ino}, {Ino: Root}}
	}
	return []Stale{{Ino: ino}}
}

func distinct(all []Stale) []Stale {
	slices.SortFunc(all, func(a, b Stale) int { return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(all)
}

// staleLost in counters.Stale: a checkpoint that was needed to tell is gone.
const staleLost = 1 << 62

// markStale notes that o changes what is mounted beside the mount: from the state
// of the last checkpoint on, its kernel may believe what is not so. A restore,
// an undo and a merge take one right before.
func (t *memory) markStale(o *op) {
	changes := o.kind >= opMake && o.kind <= opDelXattr || o.kind == opPartsEnd
	if changes && o.epoch == 0 && t.count.Stale == 0 && len(t.epochs) > 0 {
		t.count.Stale = t.count.Sealed + 1
	}
}

// BeginDirectChange comes before changes that are not made through a mount. Call done once the mount's notifier has
// them. Restores, undos and merges do that themselves; see [Workspace.OnStale].
func (w *Workspace) BeginDirectChange() (done func()) {
	w.tree.direct.Add(1)
	return func() { w.tree.direct.Add(-1) }
}

// MarkNotified records that the mount's kernel knows of every change, if all still returns true while nothing changes.
// The record may be lost in a crash.
func (w *Workspace) MarkNotified(all func() bool) {
	t := w.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count.Stale == 0 || t.direct.Load() > 0 || t.writable() != nil || !all() {
		return
	}
	t.count.Stale = 0
	t.batch.ops++ // the next flush writes it
	t.kick()
}

// Unnotified tells what the kernel that has the workspace mounted may believe and
// is not so, unless [Workspace.MarkNotified] was called: whoever served its mount may
// have died before it was told. What changed between two checkpoints is told also
// where it was changed back later. NotFound if it cannot be known: the mount must end.
func (w *Workspace) Unnotified(ctx context.Context) (all []Stale, err error) {
	w.tree.mu.RLock()
	since, checkpoints := w.tree.count.Stale, slices.Clone(w.tree.checkpoints)
	w.tree.mu.RUnlock()
	if since == 0 {
		return nil, nil
	}
	first := slices.IndexFunc(checkpoints, func(c Checkpoint) bool { return c.version+1 == since })
	if first < 0 {
		return nil, holt.Errorf(holt.NotFound, "the guest's kernel missed changes since a checkpoint that was deleted")
	}
	for i := first; i < len(checkpoints); i++ {
		to := Live
		if i+1 < len(checkpoints) {
			to = fmt.Sprint("#", checkpoints[i+1].ID)
		}
		some, err := w.staleBetween(ctx, fmt.Sprint("#", checkpoints[i].ID), to)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return distinct(all), nil
}
