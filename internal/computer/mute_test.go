package computer

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/chunk"
)

// What is on record of runs is shown soon, also of a guest that takes every question and answers none.
func TestRunsOfMuteGuest(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	go io.Copy(io.Discard, far)
	c, err := agent.NewClient(near)
	w.ok(err)
	t.Cleanup(func() { c.Close() })
	l, _ := stubborn(t)
	l.set(c, nil)
	w.machines.put(w.r.ID, l)
	defer w.machines.put(w.r.ID, nil)
	for range 5 {
		run := holt.Run{ID: holt.NewRunID(), ComputerID: w.r.ID, State: holt.RunRunning, StartedAt: time.Now()}
		w.ok(w.runRows.insert(t.Context(), run, nil))
		l.runs.opened(run.ID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*glance)
	defer cancel()
	list, err := w.Runs().List(ctx, "einstein", "", 10)
	if err != nil || len(list) != 5 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	if got, err := w.Runs().Get(ctx, list[0].ID); err != nil || got.State != holt.RunRunning || ctx.Err() != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Who asks what works in a guest that does not say waits for his own patience, and not for that of all who asked before.
func TestLookOfMuteGuest(t *testing.T) {
	first, stop := context.WithCancel(t.Context())
	asked, ended := make(chan struct{}), make(chan struct{})
	b := &busy{now: time.Now, looking: make(chan struct{}, 1), ask: func(ctx context.Context) (agent.Activity, error) {
		close(asked)
		<-ctx.Done()
		return agent.Activity{}, ctx.Err()
	}}
	go func() { defer close(ended); b.look(first) }()
	<-asked
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	second := make(chan struct{})
	go func() { defer close(second); b.look(short) }()
	select {
	case <-second:
	case <-time.After(10 * time.Second):
		t.Error("it waits for another's question")
	}
	stop()
	<-ended
	<-second
}
