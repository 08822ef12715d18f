package computer

import (
	"errors"
	"maps"
	"testing"
	"time"

	"holt"
)

// times are those of the stretches of a test.
var times = Limits{Quiet: time.Minute, Stretch: 5 * time.Minute, Leave: 2 * time.Second}

// worked is the stretches of a machine under a clock of the test.
type worked struct {
	*stretches
	clock  time.Time
	begun  []string                    // names of terminals
	ended  []map[holt.StretchID]string // what end was told
	refuse error
}

func newWorked() *worked {
	w := &worked{clock: time.Unix(1e9, 0)}
	w.stretches = newStretches(times, func(name string) (int64, error) {
		w.begun = append(w.begun, name)
		return int64(10 * len(w.begun)), w.refuse
	}, func(by map[holt.StretchID]string) { w.ended = append(w.ended, by) })
	w.now = func() time.Time { return w.clock }
	return w
}

func (w *worked) pass(d time.Duration) { w.clock = w.clock.Add(d) }

// TestStretches: what a terminal changes is one stretch until it was quiet for a
// while, or its last client has left, or it goes on for long.
func TestStretches(t *testing.T) {
	const a, b = holt.TerminalID("term_aaaaaaaaaaaaaaaa"), holt.TerminalID("term_bbbbbbbbbbbbbbbb")
	w := newWorked()
	is := func(id holt.TerminalID, checkpoint int64, ended int) {
		t.Helper()
		if got := w.changes(id, string(id[5:7])); got != holt.NewStretchID(id, checkpoint) || len(w.ended) != ended {
			t.Fatalf("%s, and %d ended; want %s and %d", got, len(w.ended), holt.NewStretchID(id, checkpoint), ended)
		}
	}
	is(a, 10, 0)
	w.pass(times.Quiet - 1)
	is(b, 10, 0) // one stretch is that of all
	w.tick()
	w.pass(times.Quiet)
	is(a, 20, 1)
	if want := map[holt.StretchID]string{holt.NewStretchID(a, 10): "aa", holt.NewStretchID(b, 10): "bb"}; !maps.Equal(w.ended[0], want) {
		t.Errorf("ended: %v, want %v", w.ended[0], want)
	}
	for range 9 { // it goes on and on
		w.pass(times.Stretch / 10)
		w.tick()
		is(a, 20, 1)
	}
	w.pass(times.Stretch / 10)
	is(a, 30, 2)

	one, two := w.attach(a), w.attach(a)
	one()
	w.pass(times.Leave)
	is(a, 30, 2) // somebody is there
	other := w.attach(b)
	two()
	other() // who changed nothing in it
	w.pass(times.Leave / 2)
	w.tick()
	is(a, 30, 2) // it still works
	w.pass(times.Leave)
	w.tick()
	if len(w.ended) != 3 {
		t.Fatal("the last one has left, and the stretch goes on")
	}
	w.tick()
	is(a, 40, 3)
	w.attach(a)()
	three := w.attach(a) // and back again
	w.pass(times.Leave)
	is(a, 40, 3)
	three()

	w.rest() // an undo takes a checkpoint of its own
	w.tick()
	w.refuse = errors.New("no room")
	if got := w.changes(a, "a"); got != "" || len(w.ended) != 3 {
		t.Errorf("without a checkpoint: %q", got)
	}
	w.pass(times.Quiet)
	w.refuse = nil
	is(a, 60, 3)
}
