package computer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

var errPlanned = errors.New("planned")

// lasting are workspaces of which none can be removed, and of which the host may have one mounted.
type lasting struct {
	Workspaces
	ws      *workspace.Workspace
	mounted error
}

func (s *lasting) Unmounted(context.Context, holt.WorkspaceID) error { return s.mounted }

func (*lasting) Forget(context.Context, holt.WorkspaceID, string) error { return nil }

func (*lasting) Remove(context.Context, holt.WorkspaceID) error { return errPlanned }

func (*lasting) Branch(context.Context, holt.WorkspaceID, holt.WorkspaceID, string, bool) error {
	return errPlanned
}

func (s *lasting) View(context.Context, holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	return s.ws, func() {}, nil
}

// remembering is an engine that can keep memory.
type remembering struct{ layered }

func (*remembering) Name() string { return "none" }

func (*remembering) Capabilities() machine.Capabilities {
	return machine.Capabilities{MemorySnapshot: true}
}

// paused is a computer that was paused, with a workspace that nobody can remove.
func paused(t *testing.T) (w *keptWorld, spaces *lasting, present snapshot) {
	t.Helper()
	w, spaces = keeps(t, &chunk.Memory{}, 1<<40), &lasting{}
	w.cfg.Workspaces = spaces
	return w, spaces, w.pauses()
}

// pauses has its computer paused at a snapshot of now.
func (w *keptWorld) pauses() snapshot {
	w.t.Helper()
	w.r.State = holt.ComputerRunning
	m := w.take(holt.SnapshotOfPause)
	w.r.State = holt.ComputerPaused
	w.ok(w.table.save(w.t.Context(), *w.r))
	return m
}

// restoresTo writes down a restore of the computer, which ran, to a snapshot.
func (w *keptWorld) restoresTo(target, present snapshot) *restoring {
	w.t.Helper()
	b := &restoring{transition: transition{s: w.Store, r: w.r, from: &target}, name: "before-restore", present: present, row: restoreRow{
		computer: w.r.ID, snapshot: target.ID, present: present.ID, workspace: holt.NewWorkspaceID(), disk: holt.NewDiskID(), ran: true,
	}}
	w.ok(b.begin(w.t.Context()))
	return b
}

// underWay is how many restores are on record.
func (w *keptWorld) underWay() int {
	w.t.Helper()
	all, err := halfRestored(w.t.Context(), w.cfg.DB)
	w.ok(err)
	return len(all)
}

// A restore that failed is over, whatever of it could not be undone: its computer stays
// paused at its present, which the error says, and no daemon takes it back later.
func TestFailedRestoreIsOver(t *testing.T) {
	w, _, target := paused(t)
	present := w.pauses()
	w.cfg.Fail = func(point string) error {
		if point == "resume/row" { // it does not go on as it was
			return errPlanned
		}
		return nil
	}
	b := w.restoresTo(target, present)
	w.ok(b.back(t.Context(), "undo-restore", b.steps()[:5]))
	if n := w.underWay(); n != 0 {
		t.Errorf("%d restores are under way", n)
	}
	r, err := w.table.find(t.Context(), string(w.r.ID))
	if err != nil || r.State != holt.ComputerPaused || r.snapshot != present.ID || w.row(present.ID).ID == "" {
		t.Errorf("its computer: %+v %v", r, err)
	}
	e := holt.AsError(b.failed(holt.Errorf(holt.OutOfSpace, "no room")))
	if e.Code != holt.OutOfSpace || !strings.Contains(e.Message, "stays paused at the snapshot before-restore") || !strings.Contains(e.Hint, "resume") {
		t.Errorf("its error: %+v", e)
	}
}

// A restore that could not be forgotten does not take back a computer that has gone on since,
// and does not keep it from another restore.
func TestRestoreThatWasNotForgotten(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		w, _, target := paused(t)
		present := w.pauses()
		w.restoresTo(target, present)
		b := w.restoresTo(target, present) // another
		if n := w.underWay(); n != 1 {
			t.Errorf("%d restores are under way", n)
		}
		later := w.pauses()
		if swapped {
			w.r.workspaceID = b.row.workspace
			w.ok(w.cfg.DB.Write(t.Context(), func(tx *db.Tx) error { return w.table.move(tx, *w.r) }))
		}
		w.ok(w.restorer.settleRestores(t.Context())) // the next daemon
		unlock, err := w.machines.lock(t.Context(), w.r.ID)
		w.ok(err)
		unlock()
		r, err := w.table.find(t.Context(), string(w.r.ID))
		if err != nil || r.State != holt.ComputerPaused || r.snapshot != later.ID {
			t.Errorf("swapped %v: %+v %v", swapped, r, err)
		}
		if n := w.underWay(); n != 0 {
			t.Errorf("swapped %v: %d restores are under way", swapped, n)
		}
	}
}

// A computer that has to go on before it is taken back does not prune what it goes back to.
func TestRestoreKeepsItsTarget(t *testing.T) {
	w, spaces, target := paused(t)
	w.cfg.Engines.Default = &remembering{layered{base: "none"}}
	ws, err := workspace.Create(t.TempDir()+"/workspace", workspace.Options{})
	w.ok(err)
	spaces.ws = ws
	t.Cleanup(func() { w.ok(ws.Close()) })
	for range keptSnapshots {
		w.pauses()
	}
	w.ok(machine.Image{Engine: "none", Hardware: []byte("{}"), Spec: machine.Spec{CPUs: 1, MemoryMB: 1}}.Write(w.snapshots.path(target.ID), false))
	w.cfg.Fail = func(point string) error { // it has no checkpoint of its present: it has to go on
		if point == "resume/row" {
			w.snapshotter.prune(t.Context(), w.r.ID, "")
			return errPlanned
		}
		return nil
	}
	if _, err := w.restorer.restore(t.Context(), string(target.ID), holt.SnapshotRestoreSpec{}, nil); !errors.Is(err, errPlanned) {
		t.Error(err)
	}
	if w.row(target.ID).ID != target.ID || !w.here(target) {
		t.Error("the snapshot to restore was pruned")
	}
	w.cfg.Fail = nil
	w.snapshotter.prune(t.Context(), w.r.ID, target.ID)
	if w.row(target.ID).ID != target.ID || !w.here(target) {
		t.Error("the snapshot that is about to be forked was pruned")
	}
	w.snapshotter.prune(t.Context(), w.r.ID, "")
	if _, err := w.snapshots.get(t.Context(), target.ID); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("what nobody asked for was not pruned: %v", err)
	}
}

// What the host has mounted since a restore began is not taken from it.
func TestMountedDuringRestore(t *testing.T) {
	w, spaces, target := paused(t)
	b := w.restoresTo(target, w.pauses())
	was := *w.r
	spaces.mounted = holt.Errorf(holt.Conflict, "mounted")
	if err := b.swap(t.Context()); holt.CodeOf(err) != holt.Conflict || w.r.snapshot != was.snapshot || w.r.workspaceID != was.workspaceID {
		t.Errorf("%v %+v", err, w.r)
	}
}
