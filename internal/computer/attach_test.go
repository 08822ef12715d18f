package computer

import (
	"context"
	"errors"
	"testing"

	"holt"
	"holt/internal/store/chunk"
)

// Who sits at a terminal of a paused computer leaves it paused until something is typed or
// somebody else lets it go on. A window that gets another size is neither.
func TestTerminalOfPausedComputer(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.pauses()
	ctx, cancel := context.WithCancel(t.Context())
	in, told := make(chan holt.TerminalInput), make(chan holt.TerminalEventKind, 9)
	sit := func() (*watching, chan error) {
		s, done := &watching{in: in, emit: func(e holt.TerminalEvent) error { told <- e.Kind; return nil }}, make(chan error, 1)
		go func() { done <- s.rest(ctx, w.waker, w.r.ID) }()
		if kind := <-told; kind != holt.TerminalPaused {
			t.Fatal(kind)
		}
		return s, done
	}
	typist, typed := sit()
	in <- holt.TerminalInput{Size: &holt.TerminalSize{Rows: 30, Cols: 90}}
	in <- holt.TerminalInput{Data: []byte("l")}
	if err := <-typed; err != nil || typist.size != (holt.TerminalSize{Rows: 30, Cols: 90}) {
		t.Errorf("%+v %v", typist.size, err)
	}
	go func() { in <- holt.TerminalInput{Data: []byte("s")} }()
	for _, want := range []string{"l", "s"} {
		if got := <-typist.in; string(got.Data) != want {
			t.Errorf("what was typed comes as %q, not %q", got.Data, want)
		}
	}
	_, woken := sit()
	w.machines.put(holt.NewComputerID(), &live{}) // another: it is still paused
	w.r.State = holt.ComputerRunning
	w.ok(w.table.save(ctx, *w.r))
	w.machines.put(w.r.ID, &live{})
	if err := <-woken; err != nil || len(told) > 0 {
		t.Errorf("%v, told %d times more", err, len(told))
	}
	w.r.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *w.r))
	_, left := sit()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Who waits at a terminal of a paused computer waits for that one, whoever has its computer's name meanwhile.
func TestTerminalWaitsByID(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.pauses()
	bohr, err := w.makes(t.Context(), "bohr", "", func(r *record) { r.State = holt.ComputerStopped })
	w.ok(err)
	all := map[holt.ComputerID]holt.Terminal{}
	for _, id := range []holt.ComputerID{w.r.ID, bohr.ID} {
		all[id] = holt.Terminal{ID: holt.NewTerminalID(), ComputerID: id, Name: "main", State: holt.TerminalRunning}
		w.ok(w.terminalRows.insert(t.Context(), all[id], nil))
	}
	in, told := make(chan holt.TerminalInput), make(chan holt.TerminalEvent, 9)
	done := make(chan error, 1)
	go func() {
		done <- w.Terminals().Attach(t.Context(), "einstein", "main", holt.AttachSpec{Again: true}, in, func(e holt.TerminalEvent) error { told <- e; return nil })
	}()
	if e := <-told; e.Kind != holt.TerminalPaused {
		t.Fatal(e.Kind)
	}
	for _, one := range all {
		w.ok(w.terminalRows.exited(t.Context(), one))
	}
	w.r.Name, bohr.Name = "einstein-old", "einstein"
	w.ok(w.table.save(t.Context(), *w.r))
	w.ok(w.table.save(t.Context(), bohr))
	in <- holt.TerminalInput{Data: []byte("x")}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if e := <-told; e.Kind != holt.TerminalAttached || e.Terminal.ComputerID != w.r.ID {
		t.Errorf("attached to %+v", e.Terminal)
	}
}

// Who was attached to a terminal that has now shown less is told why.
func TestTerminalWentBack(t *testing.T) {
	short := holt.Errorf(holt.InvalidArgument, "cannot attach at 8582 of the 8492 bytes")
	for want, tt := range map[string]struct {
		err  error
		spec holt.AttachSpec
	}{
		"gk was restored to an earlier snapshot, with its terminal main": {short, holt.AttachSpec{Offset: 8582, Again: true}},
		short.Error():             {short, holt.AttachSpec{Offset: 8582}},
		"64 clients are attached": {holt.Errorf(holt.TooMany, "64 clients are attached"), holt.AttachSpec{Again: true}},
	} {
		got := holt.AsError(restoredUnder(tt.err, "gk", holt.Terminal{Name: "main"}, tt.spec))
		if got.Message != want || tt.spec.Again && got.Code == holt.InvalidArgument {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}
