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
