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

// hold notes which verb has a seat's lock now, until that is given back.
func (s *seats) hold(ctx context.Context, id holt.ComputerID, seat *seat) (unlock func()) {
	note := func(verb string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		seat.verb, seat.since = verb, time.Now()
	}
	note(verbOf(ctx))
	return func() { note(""); <-seat.lock; s.leave(id, seat) }
}

// atWork returns the verb that has a computer's lock, if one that somebody may have to wait for has.
func (s *seats) atWork(id holt.ComputerID) *holt.AtWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.set[id]
	if seat == nil || seat.verb == "" {
		return nil
	}
	return &holt.AtWork{Verb: seat.verb, ForMS: time.Since(seat.since).Milliseconds(), Waiting: max(0, seat.users-1)}
}

// outwaited is the error for a caller whose context has ended while a computer's lock was another's.
func (s *seats) outwaited(ctx context.Context, id holt.ComputerID) error {
	err := gone(ctx)
	other := s.atWork(id)
	if other == nil || holt.CodeOf(err) != holt.Timeout {
		return err
	}
	return holt.Errorf(holt.Timeout, "it took longer than allowed to wait for %s: %w", other, context.Cause(ctx)).
		WithHint("holt computer get shows what is at work on a computer; try again when that has ended")
}
