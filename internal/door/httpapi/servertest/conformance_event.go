package servertest

import (
	"context"
	"errors"
	"testing"

	"holt"
	"holt/internal/nouns"
)

var errSeen = errors.New("seen")

// seen follows events until one is the last that is waited for.
func seen(t *testing.T, n nouns.Set, q holt.EventQuery, last func(holt.Event) bool) (all []holt.Event) {
	t.Helper()
	q.Follow = true
	err := n.Events.Follow(t.Context(), q, func(e holt.Event) error {
		if all = append(all, e); last(e) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Fatalf("following events: %v", err)
	}
	return all
}

func eventVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	began := seen(t, n, holt.EventQuery{}, func(e holt.Event) bool { return true })[0]
	if began.Kind != holt.EventReady || began.ID == "" || began.At.IsZero() {
		t.Errorf("a stream begins with %+v", began)
	}
	c := newComputer(t, n, "curie")
	newComputer(t, n, "bohr")
	run := Must(n.Runs.Start(ctx, "curie", holt.RunSpec{Command: "exit 3"}, ""))(t)
	Collect(t, n, run.ID)
	seen(t, n, holt.EventQuery{After: began.ID, Kinds: []string{"run.ended"}}, func(e holt.Event) bool { return e.Ref == string(run.ID) })
	Must(n.Computers.Stop(ctx, "curie", ""))(t)
	Must(n.Computers.Delete(ctx, "curie", ""))(t)
	gone := func(e holt.Event) bool { return e.Kind == holt.EventComputerDeleted && e.Ref == string(c.ID) }

	all := seen(t, n, holt.EventQuery{After: began.ID}, gone)
	places, last := map[holt.EventKind]int{}, -1
	for i, e := range all {
		if e.Kind == holt.EventComputerCreated && e.Name == "bohr" {
			continue
		}
		places[e.Kind] = i + 1
		if e.Kind == holt.EventRunEnded && (e.Ref != string(run.ID) || e.ExitCode == nil || *e.ExitCode != 3 || e.Computer != c.ID || e.ComputerName != "curie") {
			t.Errorf("the end of a run: %+v", e)
		}
	}
	for _, kind := range []holt.EventKind{holt.EventReady, holt.EventComputerCreated, holt.EventRunStarted, holt.EventRunEnded, holt.EventComputerDeleted} {
		if places[kind] == 0 || places[kind] <= last {
			t.Errorf("%s is at %d, behind %d: %+v", kind, places[kind], last, all)
		}
		last = places[kind]
	}
	if places[holt.EventComputerState] == 0 {
		t.Errorf("no state was told: %+v", all)
	}

	// From any of them on, the rest comes; by kind, noun and computer only some.
	rest := seen(t, n, holt.EventQuery{After: all[2].ID}, gone)
	if len(rest) != len(all)-2 || rest[1].ID != all[3].ID {
		t.Errorf("after %s came %+v", all[2].ID, rest)
	}
	some := seen(t, n, holt.EventQuery{After: began.ID, Kinds: []string{"run", "computer.deleted"}, Computer: "curie"}, gone)
	if len(some) != 4 || some[1].Kind != holt.EventRunStarted || some[2].Kind != holt.EventRunEnded {
		t.Errorf("of some kinds: %+v", some)
	}
	about := 1 // ready
	for _, e := range all {
		if e.Computer == c.ID {
			about++
		}
	}
	if some = seen(t, n, holt.EventQuery{After: began.ID, Computer: string(c.ID)}, gone); len(some) != about {
		t.Errorf("of one computer %d, of %d", len(some), about)
	}
	var over []holt.Event
	fail(t, n.Events.Follow(ctx, holt.EventQuery{}, func(e holt.Event) error { over = append(over, e); return nil }))
	if len(over) < len(all) || over[len(over)-1].ID != all[len(all)-1].ID {
		t.Errorf("what is over: %+v", over)
	}
	reset := seen(t, n, holt.EventQuery{After: "999999999"}, func(holt.Event) bool { return true })[0]
	if reset.Kind != holt.EventReset || reset.ID != over[len(over)-1].ID {
		t.Errorf("after an event that there never was: %+v", reset)
	}
	none := func(holt.Event) error { return nil }
	for _, q := range []holt.EventQuery{{Kinds: []string{"computers"}}, {Kinds: []string{"computer.exploded"}}, {After: "yesterday"}, {After: "-1"}, {After: "+1"}} {
		WantCode(t, n.Events.Follow(ctx, q, none), holt.InvalidArgument)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := n.Events.Follow(cancelled, holt.EventQuery{Follow: true}, none); err == nil {
		t.Error("following goes on without its caller")
	}
}
