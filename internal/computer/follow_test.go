package computer

import (
	"context"
	"errors"
	"testing"
	"time"

	"holt"
	"holt/internal/store/chunk"
)

// Who follows a run of a paused computer waits until a machine comes, and neither asks for the lock
// in vain nor ends the quiet work at the computer's disks.
func TestFollowOfPausedComputer(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.pauses()
	unlock, ok := w.machines.tryQuiet(w.r.ID, false, func() { t.Error("the merge of its disks is asked to end") })
	if !ok {
		t.Fatal("the computer does not rest")
	}
	run := holt.Run{ID: holt.NewRunID(), ComputerID: w.r.ID, State: holt.RunRunning, StartedAt: time.Now()}
	w.ok(w.runRows.insert(t.Context(), run, nil))
	ctx, cancel := context.WithTimeout(t.Context(), restLook-time.Second) // a machine comes: nobody looks by the clock
	defer cancel()
	done := make(chan error, 1)
	f := &follower{r: w.Runs(), id: run.ID}
	go func() {
		_, err := f.session(ctx)
		done <- err
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case err := <-done:
			w.ok(err)
			waits = false
		case <-tick.C:
			w.machines.put(holt.NewComputerID(), &live{})
		}
	}
	unlock()

	unlock, err := w.machines.lock(t.Context(), w.r.ID)
	w.ok(err)
	cancel()
	if err := w.waker.settled(ctx, w.r.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("while a verb is at work: %v", err)
	}
	unlock()
}
