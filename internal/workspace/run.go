package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"holt"
	"holt/internal/store/db"
)

// Receipt says what a run changed.
type Receipt struct {
	Run     string       // or stretch of work in a terminal
	Before  CheckpointID // the state that it began with; 0: the empty workspace
	After   CheckpointID // the state that it left; 0: it is still the present
	Changes []Change     // all of them, deletions first
}

// BeginRun says that a run begins: what was changed before it gets a
// checkpoint of its own, so that the run can be undone exactly. It returns the
// checkpoint that the run begins with.
func (w *Workspace) BeginRun(run string) (Checkpoint, error) {
	return w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Reason: "before run " + run, Run: run}, IfChanged: true})
}

// BeginSession is BeginRun for a stretch of work, which begins in the terminal of a name.
func (w *Workspace) BeginSession(stretch holt.StretchID, terminal string) (Checkpoint, error) {
	return w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Reason: "before work in terminal " + terminal, Run: string(stretch)}, IfChanged: true})
}

// EndRun says that a run is over: if it changed something since the newest
// checkpoint, it gets one. ok says whether. flushed: what the guest held in
// memory was written first. It costs what a checkpoint does, however much the
// run changed.
func (w *Workspace) EndRun(ctx context.Context, run string, flushed bool) (c Checkpoint, ok bool, err error) {
	return w.end(ctx, run, "after run "+run, flushed)
}

// EndSession is EndRun for a stretch of work in the terminal of a name.
func (w *Workspace) EndSession(ctx context.Context, stretch holt.StretchID, terminal string, flushed bool) (c Checkpoint, ok bool, err error) {
	return w.end(ctx, string(stretch), "after work in terminal "+terminal+", "+string(stretch), flushed)
}

func (w *Workspace) end(ctx context.Context, run, reason string, flushed bool) (c Checkpoint, ok bool, err error) {
	if err := w.Flush(); err != nil {
		return Checkpoint{}, false, diskError("end run", err)
	}
	_, generation := w.tree.generations()
	err = w.tree.readBriefly(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM writer w JOIN version v ON v.writer = w.id WHERE w.run = ?1 AND v.generation >= ?2 LIMIT 1",
			[]any{run, int64(generation)}, func(*db.Row) error { ok = true; return nil })
	})
	if err != nil || !ok {
		return Checkpoint{}, false, err
	}
	c, err = w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Reason: reason, Run: run, Flushed: flushed}, IfChanged: true})
	return c, err == nil, err
}

// Receipt says what a run or stretch changed, as long as the checkpoints around it are
// kept. What somebody else changed again at the same time counts as theirs. A
// run that changed nothing has an empty one. TooMany as of [Workspace.Diff].
func (w *Workspace) Receipt(ctx context.Context, run string) (r Receipt, err error) {
	err = w.window(ctx, run, func(tx *db.Tx, win *runWindow) error {
		if err := win.compare(tx, w.tree.opt.mostDifferent); err != nil {
			return err
		}
		r, err = win.receipt()
		return err
	})
	if errors.Is(err, errNoChanges) {
		return Receipt{Run: run}, nil
	}
	return r, err
}

var errNoChanges = errors.New("the run changed nothing")

// runWindow is the stretch of history in which a run changed something: from
// the checkpoint before it to that after it, or to the present.
type runWindow struct {
	run           string
	versions      map[uint32]bool // the run's
	before, after Checkpoint      // zero: the beginning, the present
	delta         *delta          // see compare
}

// window runs fn on the window of a run.
func (w *Workspace) window(ctx context.Context, run string, fn func(*db.Tx, *runWindow) error) error {
	if err := w.Flush(); err != nil {
		return diskError("look at run", err)
	}
	checkpoints, generation := w.tree.generations()
	return w.tree.index.db.Read(ctx, func(tx *db.Tx) error {
		win, err := findWindow(tx, run, checkpoints, generation)
		if err != nil {
			return err
		}
		return fn(tx, win)
	})
}

// generations returns the checkpoints and the generation that is open.
func (t *Tree) generations() ([]Checkpoint, uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.checkpoints), t.count.Generation
}

// findWindow finds the checkpoints right before and after a run. generation is
// the one that is open.
func findWindow(tx *db.Tx, run string, checkpoints []Checkpoint, generation uint64) (*runWindow, error) {
	if run == "" {
		return nil, holt.Errorf(holt.InvalidArgument, "no run is given").WithHint("give a run id; holt workspace checkpoints lists them")
	}
	win := &runWindow{run: run, versions: map[uint32]bool{}}
	first, last := uint64(0), uint64(0)
	err := tx.Query("SELECT v.id, v.generation FROM writer w JOIN version v ON v.writer = w.id WHERE w.run = ?1 ORDER BY v.id", []any{run}, func(r *db.Row) error {
		if win.versions[uint32(r.Int64(0))] = true; first == 0 {
			first = uint64(r.Int64(1))
		}
		last = uint64(r.Int64(1))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if first == 0 {
		return nil, errNoChanges
	}
	closes := func(g uint64) (Checkpoint, bool) {
		i := slices.IndexFunc(checkpoints, func(c Checkpoint) bool { return c.Generation == g })
		if i < 0 {
			return Checkpoint{}, false
		}
		return checkpoints[i], true
	}
	known := true
	if first > 1 {
		win.before, known = closes(first - 1)
	}
	if known && last < generation {
		win.after, known = closes(last)
	}
	if !known {
		return nil, holt.Errorf(holt.Conflict, "the changes of %s are no longer known exactly: the checkpoint before or after it was deleted", run).
			WithHint("restore paths from a remaining checkpoint")
	}
	return win, nil
}

// requireKnownWriters refuses a window in which it is not known of all changes who made them.
func (win *runWindow) requireKnownWriters(tx *db.Tx) error {
	last := int64(nowVersion)
	if win.after.ID != 0 {
		last = int64(win.after.version)
	}
	unknown := false
	err := tx.Query("SELECT 1 FROM version WHERE writer = ?1 AND id > ?2 AND id <= ?3 LIMIT 1", []any{int64(writerUnknown), int64(win.before.version), last},
		func(*db.Row) error { unknown = true; return nil })
	if err == nil && unknown {
		err = holt.Errorf(holt.Conflict, "the changes of %s are not known exactly: several writers changed the same files too often between two checkpoints", win.run).
			WithHint("restore paths from the checkpoint before the run")
	}
	return err
}

// compare finds what differs between the ends of the window.
func (win *runWindow) compare(tx *db.Tx, most int) (err error) {
	a, b := snapshot{int64(win.before.version), win.before.nextIno}, snapshot{nowVersion, 1 << 62}
	if win.after.ID != 0 {
		b = snapshot{int64(win.after.version), win.after.nextIno}
	}
	win.delta, err = difference(tx, a, b, most)
	return err
}

func (win *runWindow) receipt() (Receipt, error) {
	r := Receipt{Run: win.run, Before: win.before.ID, After: win.after.ID}
	all, err := win.delta.changes(nil)
	for _, c := range all {
		if c.By.Run == win.run {
			r.Changes = append(r.Changes, c)
		}
	}
	return r, err
}

// LastRun returns the run that changed something last or, if any are named, the
// stretch of work in one of these terminals. NotFound if there is none.
func (w *Workspace) LastRun(ctx context.Context, terminals ...holt.TerminalID) (run string, err error) {
	if err := w.Flush(); err != nil {
		return "", diskError("look at runs", err)
	}
	among, err := json.Marshal(terminals)
	if err != nil {
		return "", err
	}
	err = w.tree.index.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT w.run FROM version v JOIN writer w ON w.id = v.writer WHERE w.run <> ''"+
			" AND iif(?1 = 0, w.terminal = '', w.terminal IN (SELECT value FROM json_each(?2))) ORDER BY v.id DESC LIMIT 1", []any{len(terminals), string(among)},
			func(r *db.Row) error { run = r.Text(0); return nil })
	})
	if err == nil && run == "" {
		err = holt.Errorf(holt.NotFound, "no run changed anything in this workspace").
			WithHint("give a terminal's name to undo work in a terminal; use a restore to undo other changes")
		if len(terminals) > 0 {
			err = holt.Errorf(holt.NotFound, "the terminal changed nothing in this workspace").WithHint("holt workspace checkpoints lists runs and terminals that changed files")
		}
	}
	return run, err
}
