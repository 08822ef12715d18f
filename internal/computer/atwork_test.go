package computer

import (
	"context"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/idempotency"
)

// TestAtWork: which call changes a computer is told who looks at it, and named by the error of who waited in vain.
func TestAtWork(t *testing.T) {
	w, _, _ := paused(t)
	w.r.State = holt.ComputerPausing
	w.ok(w.table.save(t.Context(), *w.r))
	w.cfg.Limits.Wake = 20 * time.Millisecond
	is := func() *holt.AtWork {
		t.Helper()
		c, err := w.Store.Get(t.Context(), "einstein")
		w.ok(err)
		all, err := w.Store.List(t.Context())
		if w.ok(err); (all[0].AtWork == nil) != (c.AtWork == nil) {
			t.Errorf("got %+v, listed %+v", c.AtWork, all[0].AtWork)
		}
		return c.AtWork
	}
	if other := is(); other != nil {
		t.Errorf("before: %+v", other)
	}
	_, err := idempotency.Once(t.Context(), w.cfg.Keys, idempotency.Call[bool]{Method: "snapshot.restore", Act: func(ctx context.Context, _ *idempotency.Claim) (bool, error) {
		_, unlock, err := w.hold(ctx, "einstein")
		w.ok(err)
		defer unlock()
		if other := is(); other == nil || other.Verb != "snapshot restore" || other.Waiting != 0 {
			t.Errorf("at work: %+v", other)
		}
		_, _, err = w.waker.wake(t.Context(), "einstein", holt.Use{})
		wants(t, err, "einstein did not wake within 20ms: it is pausing, and waits for the snapshot restore in progress")
		bounded, expire := context.WithCancelCause(t.Context())
		waits := make(chan error, 1)
		go func() {
			_, _, err := w.hold(bounded, "einstein")
			waits <- err
		}()
		for is().Waiting != 1 {
			time.Sleep(time.Millisecond)
		}
		expire(context.DeadlineExceeded)
		wants(t, <-waits, "waiting for the snapshot restore in progress")
		return true, nil
	}})
	if w.ok(err); is() != nil {
		t.Errorf("after: %+v", is())
	}
}

func wants(t *testing.T, err error, says string) {
	t.Helper()
	if holt.CodeOf(err) != holt.Timeout || !strings.Contains(err.Error(), says) || holt.AsError(err).Hint == "" {
		t.Errorf("got %v, want %q", err, says)
	}
}
