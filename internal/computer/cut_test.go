package computer

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/chunk"
)

// cutting is a guest that breaks each operation off, as an agent does that ends, on a channel that goes on. It closes
// each stream that yamux opens.
func cutting(t *testing.T, cut func()) *agent.Client {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	const window, syn, ack, fin = 1, 1, 2, 4
	answers := make(chan []byte, 100)
	go func() {
		for b := range answers {
			if _, err := far.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(answers)
		for h := make([]byte, 12); ; {
			if _, err := io.ReadFull(far, h); err != nil {
				return
			}
			if h[1] == 0 {
				if _, err := io.CopyN(io.Discard, far, int64(binary.BigEndian.Uint32(h[8:]))); err != nil {
					return
				}
			}
			if h[3]&syn != 0 {
				answers <- append([]byte{0, window, 0, ack | fin}, append(h[4:8:8], 0, 0, 0, 0)...)
				cut()
			}
		}
	}()
	c, err := agent.NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A guest that ends breaks off what goes on a moment before its channel ends: who follows a run hears of the run's end, and
// not of that. A run whose start was broken off is not forgotten: it may have begun.
func TestCutOff(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	run := holt.Run{ID: holt.NewRunID(), ComputerID: w.r.ID, State: holt.RunRunning, StartedAt: time.Now()}
	w.ok(w.runRows.insert(t.Context(), run, nil))
	l, _ := stubborn(t)
	l.id, l.limits.Answer = w.r.ID, time.Minute
	var cuts int
	c := cutting(t, func() {
		if cuts++; cuts == 3 {
			w.machines.put(w.r.ID, nil)
			if _, err := w.runRows.lose(t.Context(), l.runs.launches.ask(run.ID), run.ID); err != nil {
				t.Error(err)
			}
		}
	})
	l.set(c, nil)
	if err := w.Runs().launch(t.Context(), l, run.ID, holt.RunSpec{}); holt.CodeOf(err) != holt.Unavailable {
		t.Error(err)
	}
	if _, err := w.runRows.get(t.Context(), run.ID); err != nil || broken(c) {
		t.Errorf("a run that may have begun: %v", err)
	}
	cuts = 0
	w.machines.put(w.r.ID, l)
	defer w.machines.put(w.r.ID, nil)
	if _, err := (&follower{r: w.Runs(), id: run.ID, cuts: mostCuts}).session(t.Context()); holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("of a guest that does nothing else: %v", err)
	}
	var end *holt.Run
	if err := w.Runs().Follow(t.Context(), run.ID, 0, func(e holt.RunEvent) error { end = e.Run; return nil }); err != nil || end == nil || end.State != holt.RunLost || cuts != 3 {
		t.Errorf("%+v, %v, broken off %d times", end, err, cuts)
	}
}
