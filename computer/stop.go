package computer

import (
	"context"
	"time"

	"holt"
	"holt/agent"
)

// Stop shuts a computer down and keeps both disks; a stopped one is left as
// it is. A guest that does not end when asked is powered down, then killed. It
// goes on when its caller leaves.
//
// Errors: NotFound, Conflict (it is being deleted).
func (s *Store) Stop(ctx context.Context, ref, key string) (holt.Computer, error) {
	return detach(ctx, s, func(ctx context.Context) (holt.Computer, error) {
		return Once(ctx, s.cfg.Keys, Call[holt.Computer]{
			Key: key, Method: "computer.stop", Request: ref,
			Act: func(ctx context.Context, _ *Claim) (holt.Computer, error) { return s.stop(ctx, ref) },
		})
	})
}

func (s *Store) stop(ctx context.Context, ref string) (holt.Computer, error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	switch r.State {
	case holt.ComputerStopped:
		return s.shown(r), nil
	case holt.ComputerRunning, holt.ComputerStopping:
	default:
		return holt.Computer{}, inState(r)
	}
	r.State, r.Reason = holt.ComputerStopping, ""
	if err := s.save(ctx, r); err != nil {
		return holt.Computer{}, err
	}
	if err := s.point("stop/halt"); err != nil {
		return holt.Computer{}, err
	}
	err = s.finishStop(ctx, &r)
	return s.shown(r), err
}

// finishStop ends the machine of a computer that is stopping. The computer's
// lock is held.
func (s *Store) finishStop(ctx context.Context, r *record) error {
	m := &making{s: s, r: r, live: s.live(r.ID)}
	reason := ""
	if m.live != nil {
		reason = s.halt(ctx, m.live)
	}
	if ctx.Err() != nil {
		return ending() // the next daemon goes on
	}
	if err := m.back(ctx, "stop", m.boot()); err != nil {
		return err
	}
	return s.stopped(ctx, r, reason)
}

// stopped records that a computer's machine has ended.
func (s *Store) stopped(ctx context.Context, r *record, reason string) error {
	if err := s.loseRuns(ctx, r.ID); err != nil {
		return err
	}
	r.State, r.Reason = holt.ComputerStopped, reason
	if err := s.save(ctx, *r); err != nil {
		return err
	}
	s.log.Info("computer stopped", "computer", r.ID, "name", r.Name, "reason", reason)
	return nil
}

// halt asks the guest to end, ever more firmly, while its workspace is still
// served. It returns what a person should know about how it ended.
func (s *Store) halt(ctx context.Context, l *live) (reason string) {
	limits := s.cfg.Limits
	asked := l.do(ctx, limits.Answer, false, func(ctx context.Context, c *agent.Client) error {
		s.collect(ctx, l, c) // what has ended was not lost
		return c.Shutdown(ctx)
	})
	if asked == nil && ended(ctx, l, limits.Shutdown) {
		return ""
	}
	s.log.Warn("guest does not shut down", "computer", l.id, "err", asked)
	if s.cfg.Engine.Capabilities().PowerButton {
		if err := l.m.PowerDown(ctx); err == nil && ended(ctx, l, limits.PowerDown) {
			return ""
		}
	}
	if ctx.Err() != nil {
		return ""
	}
	return "its guest did not shut down when asked, so its machine was ended; what it had not synced may be lost"
}

// ended waits until the machine has ended.
func ended(ctx context.Context, l *live, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.m.Done():
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
