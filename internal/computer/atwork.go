package computer

import (
	"cmp"
	"context"
	"strings"
	"time"

	"holt"
	"holt/internal/idempotency"
)

// verbOf names the call that a context is of, as "pause" of the method "computer.pause".
func verbOf(ctx context.Context) string {
	verb := strings.TrimPrefix(idempotency.Method(ctx), "computer.")
	return cmp.Or(strings.ReplaceAll(verb, ".", " "), "change")
}

// hold records which call holds a computer's lock until it is unlocked.
func (s *machines) hold(ctx context.Context, id holt.ComputerID, slot *slot) (unlock func()) {
	note := func(verb string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		slot.verb, slot.since = verb, time.Now()
	}
	note(verbOf(ctx))
	return func() { note(""); <-slot.lock; s.leave(id, slot) }
}

// atWork returns the call that holds a computer's lock; nil for background work, which yields to
// callers.
func (s *machines) atWork(id holt.ComputerID) *holt.AtWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.set[id]
	if slot == nil || slot.verb == "" {
		return nil
	}
	return &holt.AtWork{Verb: slot.verb, ForMS: time.Since(slot.since).Milliseconds(), Waiting: max(0, slot.users-1)}
}

// lockTimeout is the error of a caller whose context ended while it waited for a lock. It names the
// call that holds the lock.
func (s *machines) lockTimeout(ctx context.Context, id holt.ComputerID) error {
	err := gone(ctx)
	other := s.atWork(id)
	if other == nil || holt.CodeOf(err) != holt.Timeout {
		return err
	}
	return holt.Errorf(holt.Timeout, "timed out waiting for %s: %w", other, context.Cause(ctx)).
		WithHint("holt computer get shows which call is at work on a computer; try again when it has ended")
}
