package computer

import (
	"testing"
	"time"

	"holt"
	"holt/chunk"
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

// A moment is found by its id, by a name that only one has, and as COMPUTER@MOMENT, by every verb.
func TestFindMoment(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	m := w.take(holt.MomentSnapshot)
	id := string(m.ID)
	for _, ref := range []string{id, w.r.Name + "@" + id, string(w.r.ID) + "@" + id} {
		if got, err := w.moments.find(t.Context(), ref); err != nil || got.ID != m.ID {
			t.Errorf("%s: %v %v", ref, got.ID, err)
		}
		if got, err := w.moments.of(t.Context(), *w.r, ref); err != nil || got.ID != m.ID {
			t.Errorf("%s of its computer: %v %v", ref, got.ID, err)
		}
	}
	other := holt.Computer{ID: holt.NewComputerID(), Name: w.r.Name + "-other"}
	r := record{Computer: other, workspaceID: holt.NewWorkspaceID()}
	w.ok(w.table.insert(t.Context(), &r, nil, func(string) bool { return false }, nothingWith))
	for _, ref := range []string{r.Name + "@" + id, "nobody@" + id, w.r.Name + "@nothing", "@" + id} {
		if got, err := w.moments.find(t.Context(), ref); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("%s: %v %v", ref, got.ID, err)
		}
	}
	if got, err := w.moments.of(t.Context(), r, w.r.Name+"@"+id); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("another one's: %v %v", got.ID, err)
	}
}
