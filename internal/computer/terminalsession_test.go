package computer

import (
	"errors"
	"maps"
	"testing"
	"time"

	"holt"
)

// times are those of the terminal sessions of a test.
var times = Limits{Quiet: time.Minute, Stretch: 5 * time.Minute, Leave: 2 * time.Second}

// worked is the terminal sessions of a machine under a clock of the test.
type worked struct {
	*terminalSessions
	clock  time.Time
	begun  []holt.StretchID
	ended  []map[holt.StretchID]string // what end was told
	refuse error
}

func newWorked() *worked {
	w := &worked{clock: time.Unix(1e9, 0)}
	w.terminalSessions = newTerminalSessions(times, func(id holt.StretchID, _ string) error {
		w.begun = append(w.begun, id)
		return w.refuse
	}, func(by map[holt.StretchID]string) { w.ended = append(w.ended, by) })
	w.now = func() time.Time { return w.clock }
	return w
}

func (w *worked) pass(d time.Duration) { w.clock = w.clock.Add(d) }

const termA, termB = holt.TerminalID("term_aaaaaaaaaaaaaaaa"), holt.TerminalID("term_bbbbbbbbbbbbbbbb")

// TestStretches: what a terminal changes is one terminal session until it was quiet for a
// while, or its last client has left, or it goes on for long.
func TestStretches(t *testing.T) {
	const a, b = termA, termB
	w := newWorked()
	names := map[holt.TerminalID]map[int]holt.StretchID{a: {}, b: {}}
	is := func(id holt.TerminalID, nth, ended int) { // a change of a terminal is part of the nth terminal session
		t.Helper()
		got := w.changes(id, string(id[5:7]))
		if _, ok := names[id][nth]; !ok {
			names[id][nth] = got
		}
		if _, err := holt.ParseStretchID(string(got)); err != nil || got != names[id][nth] || len(w.begun) != nth || len(w.ended) != ended {
			t.Fatalf("%s (%v), %d begun and %d ended; want %s, %d and %d", got, err, len(w.begun), len(w.ended), names[id][nth], nth, ended)
		}
	}
	is(a, 1, 0)
	w.pass(times.Quiet - 1)
	is(b, 1, 0) // one terminal session is that of all
	w.tick()
	w.pass(times.Quiet)
	is(a, 2, 1)
	if want := map[holt.StretchID]string{names[a][1]: "aa", names[b][1]: "bb"}; !maps.Equal(w.ended[0], want) || w.begun[0] != names[a][1] || names[a][2] == names[a][1] {
		t.Errorf("begun: %v, ended: %v, want %v", w.begun, w.ended[0], want)
	}
	for range 9 { // it goes on and on
		w.pass(times.Stretch / 10)
		w.tick()
		is(a, 2, 1)
	}
	w.pass(times.Stretch / 10)
	is(a, 3, 2)

	one, two := w.attach(a), w.attach(a)
	one()
	w.pass(times.Leave)
	is(a, 3, 2) // somebody is there
	other := w.attach(b)
	two()
	other() // who changed nothing in it
	w.pass(times.Leave / 2)
	w.tick()
	is(a, 3, 2) // it still works
	w.pass(times.Leave)
	w.tick()
	if len(w.ended) != 3 {
		t.Fatal("the last one has left, and the terminal session goes on")
	}
	w.tick()
	is(a, 4, 3)
	w.attach(a)()
	three := w.attach(a) // and back again
	w.pass(times.Leave)
	is(a, 4, 3)
	three()
}

// TestStretchesRest: an undo ends a terminal session with a checkpoint of its own, one that came
// to nothing without; and where a terminal session could get none, there is none after it either.
func TestStretchesRest(t *testing.T) {
	w := newWorked()
	first := w.changes(termA, "a")
	w.rest() // its caller takes the checkpoint
	if w.tick(); len(w.ended) != 0 {
		t.Errorf("ended: %v", w.ended)
	}
	second := w.changes(termA, "a")
	w.rest()()
	if want := map[holt.StretchID]string{second: "a"}; second == first || len(w.ended) != 1 || !maps.Equal(w.ended[0], want) {
		t.Errorf("after a rest without a checkpoint: %v, want %v", w.ended, want)
	}
	w.rest()() // nothing was changed
	w.refuse = errors.New("no room")
	if got := w.changes(termA, "a"); got != "" || len(w.ended) != 1 {
		t.Errorf("without a checkpoint: %q", got)
	}
	w.pass(times.Quiet)
	w.refuse = nil
	if got := w.changes(termA, "a"); got == "" || len(w.ended) != 1 {
		t.Errorf("with room again: %q, %v", got, w.ended)
	}
}

// TestStretchesOfForks: a fork has its parent's terminals, and the same numbers of
// checkpoints; a merge tells their work apart.
func TestStretchesOfForks(t *testing.T) {
	if a, b := newWorked().changes(termA, "a"), newWorked().changes(termA, "a"); a == b {
		t.Errorf("the terminal sessions of two machines are %s", a)
	}
}
