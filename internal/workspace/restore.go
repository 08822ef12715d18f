package workspace

import (
	"context"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// RestoreOptions say what to restore or undo.
type RestoreOptions struct {
	Paths  []string // only what is, or was, at or below these absolute paths; none: everything
	DryRun bool     // change nothing, only say what would
}

// Report says what a restore or an undo did, or would do.
type Report struct {
	Before    CheckpointID // the present as it was, checkpointed first; 0 after a dry run, or if there was nothing to do
	Changes   []Change     // from what was to what is
	Conflicts []Conflict   // what was left as it is, and why
}

// Conflict is a path that cannot be undone or merged without losing something.
type Conflict struct {
	Path   string
	Code   holt.ConflictCode
	Reason string // a sentence
}

// Restore makes the workspace, or some paths of it, what it was at a
// checkpoint (see [Workspace.FindCheckpoint]). The present is checkpointed
// first, and what a restore changes is a new generation: nothing is lost.
// Files keep their inode numbers and times and share their bytes with what
// they were. It happens wholly or not at all, and everything else waits until
// it has; so does a crash: recovery finds the one or the other.
//
// With paths, what has since moved out of them stays where it is, and comes
// back as a copy with a new inode number. Conflict if a directory above a path
// was removed or moved since; NotFound if a path is not there now and was not then;
// TooMany as of [Workspace.Diff].
func (w *Workspace) Restore(ctx context.Context, c Caller, ref string, opt RestoreOptions) (Report, error) {
	paths, err := cleanPaths(opt.Paths)
	if err != nil {
		return Report{}, err
	}
	target, err := w.FindCheckpoint(ref)
	if err != nil {
		return Report{}, err
	}
	build := func(tx *db.Tx) (*plan, Report, error) {
		d, err := difference(tx, snapshot{nowVersion, 1 << 62}, snapshot{int64(target.version), target.nextIno}, w.tree.opt.mostDifferent)
		if err != nil {
			return nil, Report{}, err
		}
		changes, err := d.changes(paths)
		if err != nil {
			return nil, Report{}, err
		}
		s := &restorePlanner{d: d, paths: paths, next: Ino(w.tree.count.NextIno)}
		g, err := s.plan()
		return g, Report{Changes: changes}, err
	}
	what := atomicChange{reason: "before restore of " + target.Name, build: build}
	if len(paths) == 0 {
		what.head = target.ID
	} else {
		what.look = func(tx *db.Tx) error {
			return requirePaths(paths, Live, point{tx, nowVersion}, target.Name, point{tx, int64(target.version)})
		}
	}
	return w.change(ctx, c, opt.DryRun, what)
}

// atomicChange is a change of the present that happens as a whole or not at all.
type atomicChange struct {
	reason string                              // of the checkpoint that is taken first
	head   CheckpointID                        // what the present descends from then; 0: what it did before
	look   func(*db.Tx) error                  // may refuse before that checkpoint; may be nil
	build  func(*db.Tx) (*plan, Report, error) // works out what is to be
}

// change makes a plan and carries it out: the present is checkpointed, and no
// other operation runs while the parts are applied.
func (w *Workspace) change(ctx context.Context, c Caller, dryRun bool, what atomicChange) (report Report, err error) {
	if err := w.Flush(); err != nil { // so that little is left to write while all other operations wait
		return Report{}, diskError("change workspace", err)
	}
	t := w.tree
	if dryRun {
		err := t.index.db.Read(ctx, func(tx *db.Tx) error {
			if err := what.refuses(tx); err != nil {
				return err
			}
			_, report, err = what.build(tx)
			return err
		})
		return report, err
	}
	defer w.BeginDirectChange()()
	stale, report, err := t.changeAtomically(ctx, c, what)
	if len(stale) > 0 { // it has happened, whatever the error
		w.announce(stale)
	}
	return report, err
}

func (what atomicChange) refuses(tx *db.Tx) error {
	if what.look == nil {
		return nil
	}
	return what.look(tx)
}

// changeAtomically is change without the announcement.
func (t *Tree) changeAtomically(ctx context.Context, c Caller, what atomicChange) (stale []Stale, report Report, err error) {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.writable(); err != nil {
		return nil, Report{}, diskError("change workspace", err)
	}
	defer t.inodes.tidy()
	if what.look != nil {
		if err := t.flushHeld(); err != nil {
			return nil, Report{}, diskError("change workspace", err)
		}
		if err := t.index.db.ReadNow(ctx, what.look); err != nil {
			return nil, Report{}, err
		}
	}
	before, err := t.checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Reason: what.reason}, IfChanged: true})
	if err != nil {
		return nil, Report{}, err
	}
	end, err := t.record(opPartsEnd, Caller{Writer: c.Writer})
	if err == nil {
		err = t.flushHeld()
	}
	if err != nil {
		return nil, Report{}, diskError("change workspace", err)
	}
	err = t.index.db.ReadNow(ctx, func(tx *db.Tx) error {
		g, r, err := what.build(tx)
		if err != nil {
			return err
		}
		report = r
		p, err := newPlanEncoder(t, g)
		if err != nil {
			return err
		}
		end.n = int64(what.head)
		if len(p.parts.blobs) == 0 && (what.head == 0 || uint64(what.head) == t.count.Head) {
			return nil
		}
		report.Before = before.ID
		if err := t.commitParts(p.parts, end); err != nil {
			return err
		}
		if stale = p.stale; g.after == nil {
			return nil
		}
		return g.after()
	})
	if err != nil {
		if _, ok := err.(*holt.Error); !ok {
			err = diskError("change workspace", err)
		}
		return stale, Report{}, err
	}
	return unique(stale), report, nil
}

// unique sorts notices and drops repeated ones.
func unique(all []Stale) []Stale {
	seen := make(map[Stale]bool, len(all))
	return slices.DeleteFunc(all, func(s Stale) bool {
		was := seen[s]
		seen[s] = true
		return was
	})
}

// OnStale makes fn hear of everything that kernels may no longer believe
// because it was not changed through a mount: restores and undos. It is called
// after the change, with no lock held, and should not wait for a kernel. cancel
// ends that.
func (w *Workspace) OnStale(fn func([]Stale)) (cancel func()) {
	w.staleMu.Lock()
	defer w.staleMu.Unlock()
	w.staleNext++
	id := w.staleNext
	if w.stale == nil {
		w.stale = map[int]func([]Stale){}
	}
	w.stale[id] = fn
	return func() {
		w.staleMu.Lock()
		defer w.staleMu.Unlock()
		delete(w.stale, id)
	}
}

func (w *Workspace) announce(stale []Stale) {
	w.staleMu.Lock()
	var all []func([]Stale)
	for _, fn := range w.stale {
		all = append(all, fn)
	}
	w.staleMu.Unlock()
	for _, fn := range all {
		fn(stale)
	}
}
