package access

import (
	"context"
	"sync"
	"time"

	"holt"
)

// checkEvery is the longest interval between checks of the wall clock: timers do not advance while the host is suspended.
const checkEvery = time.Minute

// held is the set of open streams by token. A revocation ends the streams of the token.
type held struct {
	mu   sync.Mutex
	open map[holt.TokenID]map[*stream]struct{}
}

type stream struct{ end context.CancelCauseFunc }

// Hold returns a context for a stream of a caller with the token. The context ends with an
// Unauthenticated error as its cause when the token is revoked or expires. The caller calls the
// returned function at the end of the stream.
func (t *Tokens) Hold(ctx context.Context, token Token) (context.Context, context.CancelFunc) {
	release := func() {}
	if token.ExpiresAt != nil {
		ctx, release = Until(ctx, *token.ExpiresAt, t.now, ended("has expired"))
	}
	ctx, end := context.WithCancelCause(ctx)
	s := &stream{end}
	t.add(token.ID, s)
	// It may have been revoked between Check and add.
	if known, err := t.known(ctx, token.ID); err == nil && !known {
		end(ended("was revoked"))
	}
	return ctx, func() {
		t.remove(token.ID, s)
		end(context.Canceled)
		release()
	}
}

// Until returns a context that ends with a cause when now reaches end. If the host is suspended then, the context ends
// within [checkEvery] of its resumption. The returned function releases the timer.
func Until(ctx context.Context, end time.Time, now func() time.Time, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	end = end.Round(0) // removes the monotonic reading
	left := func() time.Duration { return min(end.Sub(now()), checkEvery) }
	if left() <= 0 {
		cancel(cause)
		return ctx, func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(left(), func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if next := left(); next > 0 {
			timer.Reset(next)
			return
		}
		cancel(cause)
	})
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		cancel(context.Canceled)
		timer.Stop()
	}
}

func ended(how string) error {
	return holt.Errorf(holt.Unauthenticated, "the token %s", how).WithHint("use another token")
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

// drop ends the streams of a revoked token.
func (h *held) drop(id holt.TokenID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.open[id] {
		s.end(ended("was revoked"))
	}
}
