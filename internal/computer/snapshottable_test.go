package computer

import (
	"errors"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// How a snapshot was taken can be seen later.
func TestSnapshotTellsHowItWasTaken(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.take(holt.SnapshotManual)
	m.report = machine.SnapshotReport{Pause: 1500 * time.Millisecond, Throttle: 90, Forced: true}
	w.ok(w.snapshots.ready(t.Context(), w.table, m, *w.r))
	if got := w.row(m.ID); got.PauseMS != 1500 || got.Throttle != 90 || !got.Forced {
		t.Errorf("%+v", got.Snapshot)
	}
}

// A snapshot is found by its id, by a name that only one has, and as COMPUTER@SNAPSHOT, by every verb.
func TestFindSnapshot(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.take(holt.SnapshotManual)
	id := string(m.ID)
	for _, ref := range []string{id, w.r.Name + "@" + id, string(w.r.ID) + "@" + id} {
		if got, err := w.snapshots.find(t.Context(), ref); err != nil || got.ID != m.ID {
			t.Errorf("%s: %v %v", ref, got.ID, err)
		}
		if got, err := w.snapshots.of(t.Context(), *w.r, ref); err != nil || got.ID != m.ID {
			t.Errorf("%s of its computer: %v %v", ref, got.ID, err)
		}
	}
	other := holt.Computer{ID: holt.NewComputerID(), Name: w.r.Name + "-other"}
	r := record{Computer: other, workspaceID: holt.NewWorkspaceID()}
	w.ok(w.table.insert(t.Context(), &r, nil, func(string) bool { return false }, nothingWith))
	for _, ref := range []string{r.Name + "@" + id, "nobody@" + id, w.r.Name + "@nothing", "@" + id} {
		if got, err := w.snapshots.find(t.Context(), ref); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("%s: %v %v", ref, got.ID, err)
		}
	}
	if got, err := w.snapshots.of(t.Context(), r, w.r.Name+"@"+id); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("another one's: %v %v", got.ID, err)
	}
	theirs := snapshot{Snapshot: holt.Snapshot{ID: holt.NewSnapshotID(), Kind: holt.SnapshotManual, ComputerID: r.ID}, workspace: r.workspaceID}
	w.ok(w.snapshots.insert(t.Context(), w.disks, r, theirs, nil))
	for _, one := range []snapshot{m, theirs} {
		w.ok(w.cfg.DB.Write(t.Context(), func(tx *db.Tx) error {
			one.Kind = holt.SnapshotOfPause
			return errors.Join(w.snapshots.unkeepPresent(tx, one), w.snapshots.keepPresent(tx, one, "r1"))
		}))
	}
	_, err := w.snapshots.find(t.Context(), "r1")
	if e := holt.AsError(err); e == nil || e.Code != holt.Conflict || e.Hint != "name it as COMPUTER@r1" {
		t.Errorf("two have it: %+v", e)
	}
	if got, err := w.snapshots.find(t.Context(), r.Name+"@r1"); err != nil || got.ID != theirs.ID {
		t.Errorf("one of two: %v %v", got.ID, err)
	}
}

// What becomes a snapshot while older snapshots are removed stays.
func TestPruneLeavesWhatIsKeptSince(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	ctx := t.Context()
	own := w.r
	w.r = &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: "bohr", State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID(), image: "digest"}
	w.ok(w.table.insert(ctx, w.r, nil, func(string) bool { return false }, nothingWith))
	oldest, paused := w.take(holt.SnapshotOfFork), w.take(holt.SnapshotOfPause)
	bohr := w.r
	bohr.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *bohr))
	w.r = own
	going, used := w.take(holt.SnapshotOfFork), w.take(holt.SnapshotOfFork)
	restored := false
	w.cfg.Fail = func(point string) error {
		if point == "snapshot/files" && !restored { // one is being removed: a restore of bohr comes and goes meanwhile
			restored = true
			w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return w.snapshots.keepPresent(tx, paused, "before-restore") }))
			bohr.State = holt.ComputerRunning
			w.ok(w.table.save(ctx, *bohr))
		}
		return nil
	}
	w.snapshotter.prune(ctx, own.ID, used.ID)
	if m := w.row(paused.ID); !restored || m.Name != "before-restore" {
		t.Errorf("restored: %v; %+v", restored, m.Snapshot)
	}
	w.row(used.ID)
	for _, m := range []snapshot{oldest, going} {
		if _, err := w.snapshots.get(ctx, m.ID); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("a snapshot that nobody asked for, and for which there is no room, is there: %v", err)
		}
	}
}
