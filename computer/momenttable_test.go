package computer

import (
	"testing"
	"time"

	"holt"
	"holt/chunk"
	"holt/db"
	"holt/machine"
)

// How a moment was taken can be seen later.
func TestMomentTellsHowItWasTaken(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.take(holt.MomentSnapshot)
	m.report = machine.SnapshotReport{Pause: 1500 * time.Millisecond, Throttle: 90, Forced: true}
	w.ok(w.moments.ready(t.Context(), w.table, m, *w.r))
	if got := w.row(m.ID); got.PauseMS != 1500 || got.Throttle != 90 || !got.Forced {
		t.Errorf("%+v", got.Moment)
	}
}

// What becomes a snapshot while older moments are removed stays.
func TestPruneLeavesWhatIsKeptSince(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	ctx := t.Context()
	own := w.r
	w.r = &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: "bohr", State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID(), image: "digest"}
	w.ok(w.table.insert(ctx, w.r, nil, func(string) bool { return false }, nothingWith))
	oldest, paused := w.take(holt.MomentFork), w.take(holt.MomentPause)
	bohr := w.r
	bohr.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *bohr))
	w.r = own
	going, used := w.take(holt.MomentFork), w.take(holt.MomentFork)
	restored := false
	w.cfg.Fail = func(point string) error {
		if point == "moment/files" && !restored { // one is being removed: a restore of bohr comes and goes meanwhile
			restored = true
			w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return w.moments.keepPresent(tx, paused, "before-restore") }))
			bohr.State = holt.ComputerRunning
			w.ok(w.table.save(ctx, *bohr))
		}
		return nil
	}
	w.prune(ctx, own.ID, used.ID)
	if m := w.row(paused.ID); !restored || m.Name != "before-restore" {
		t.Errorf("restored: %v; %+v", restored, m.Moment)
	}
	w.row(used.ID)
	for _, m := range []moment{oldest, going} {
		if _, err := w.moments.get(ctx, m.ID); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("a moment that nobody asked for, and for which there is no room, is there: %v", err)
		}
	}
}
