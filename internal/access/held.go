package access

import (
	"context"
	"sync"
	"time"

	"holt"
)

// lookEvery is how long the wall clock is not looked at, at most: the timers of a process stand while its host sleeps.
const lookEvery = time.Minute

// held are the streams that tokens have open: a revoked token's end with it.
type held struct {
	mu   sync.Mutex
	open map[holt.TokenID]map[*stream]struct{}
}

// stream is one of them.
type stream struct{ end context.CancelCauseFunc }

// Hold returns a context for a stream that a caller with the token has open: it ends, with an
// Unauthenticated error as its cause, when the token is revoked or its time is over. The stream's
// end calls the function that is returned.
func (t *Tokens) Hold(ctx context.Context, token Token) (context.Context, context.CancelFunc) {
	release := func() {}
	if token.ExpiresAt != nil {
		ctx, release = Until(ctx, *token.ExpiresAt, t.now, ended("has expired"))
	}
	ctx, end := context.WithCancelCause(ctx)
	s := &stream{end}
	t.add(token.ID, s)
	// It may have been revoked since it was checked, before it was held.
	if known, err := t.known(ctx, token.ID); err == nil && !known {
		end(ended("was revoked"))
	}
	return ctx, func() {
		t.remove(token.ID, s)
		end(context.Canceled)
		release()
	}
}

// Until returns a context that ends with a cause at a time of the clock that now reads, also if the host sleeps meanwhile:
// then within [lookEvery] of its waking. What it takes is given back by the function that is returned.
func Until(ctx context.Context, end time.Time, now func() time.Time, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	end = end.Round(0) // of the wall clock
	left := func() time.Duration { return min(end.Sub(now()), lookEvery) }
	if left() <= 0 {
		cancel(cause)
		return ctx, func() {}
	}
	var mu sync.Mutex
	var look *time.Timer
	mu.Lock()
	defer mu.Unlock()
	look = time.AfterFunc(left(), func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if next := left(); next > 0 {
			look.Reset(next)
			return
		}
		cancel(cause)
	})
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		cancel(context.Canceled)
		look.Stop()
	}
}

func ended(how string) error {
	return holt.Errorf(holt.Unauthenticated, "the token %s", how).WithHint("come again with another")
}

func (h *held) add(id holt.TokenID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[holt.TokenID]map[*stream]struct{}{}
	}
	if h.open[id] == nil {
		h.open[id] = map[*stream]struct{}{}
	}
	h.open[id][s] = struct{}{}
}

func (h *held) remove(id holt.TokenID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.open[id], s); len(h.open[id]) == 0 {
		delete(h.open, id)
	}
}

// drop ends what a token that was revoked has open.
func (h *held) drop(id holt.TokenID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.open[id] {
		s.end(ended("was revoked"))
	}
}
