package computer

import (
	"context"
	"time"

	"holt"
)

// waking is the store as those see it who need a machine that runs.
type waking struct{ *Store }

// wake returns the running machine of a computer that use is a mark of, see [waking.use]. A stopped one
// is started, a paused one goes on; a verb at work on it is waited for. All that takes at most [Limits].Wake.
func (s waking) wake(ctx context.Context, ref string, use holt.Use) (record, *live, error) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Limits.Wake)
	defer cancel()
	r, l, err := s.awaken(bounded, ref, use)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return record{}, nil, s.asleep(ctx, ref)
	}
	return r, l, err
}

// asleep is the error for a computer that did not wake in time.
func (s waking) asleep(ctx context.Context, ref string) error {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return err
	}
	is := string(r.State)
	if other := s.machines.atWork(r.ID); other != nil {
		is += ", and waits for " + other.String()
	}
	return holt.Errorf(holt.Timeout, "%s did not wake within %v: it is %s", r.Name, holt.ShortDuration(s.cfg.Limits.Wake), is).
		WithHint("it may go on waking: holt computer get %s shows what it is; then try again", r.Name)
}

func (s waking) awaken(ctx context.Context, ref string, use holt.Use) (record, *live, error) {
	began := time.Now()
	for {
		r, err := s.table.find(ctx, ref)
		if err != nil {
			return record{}, nil, err
		}
		switch r.State {
		case holt.ComputerRunning:
			if pausing := s.uses.pausing(r.ID); !pausing { // looked at first: what is not now, is not while this use goes on
				if l := s.machines.live(r.ID); l != nil && l.running() {
					return r, l, nil
				}
			}
			if err := s.settled(ctx, r.ID); err != nil {
				return record{}, nil, err
			}
			backoff(ctx, 0) // its end is being recorded
		case holt.ComputerStopped:
			if _, err := s.verb(ctx, "computer.start", string(r.ID), "", s.start); err != nil {
				return record{}, nil, err
			}
			s.cfg.Observe.wake(r.State, began)
			s.woken(ctx, r.ID, began, use)
		case holt.ComputerPaused:
			if _, err := s.verb(ctx, "computer.resume", string(r.ID), "", memory(s).resume); err != nil {
				return record{}, nil, err
			}
			s.cfg.Observe.wake(r.State, began)
			s.woken(ctx, r.ID, began, use)
		case holt.ComputerFailed:
			return record{}, nil, wrongState(r)
		default:
			r, unlock, err := s.hold(ctx, string(r.ID))
			if err != nil {
				return record{}, nil, err
			}
			unlock()
			if err := s.abandoned(ctx, r); err != nil {
				return record{}, nil, err
			}
		}
	}
}

// woken puts on record what woke a computer and how long that took, unless somebody has already.
func (s *Store) woken(ctx context.Context, id holt.ComputerID, began time.Time, use holt.Use) {
	if err := s.idleRows.woken(ctx, id, began, time.Now(), use); err != nil {
		s.log.WarnContext(ctx, "record what woke a computer", "computer", id, "err", err)
	}
}

// abandoned deals with what a verb left half-way that is over: its lock was free.
func (s waking) abandoned(ctx context.Context, r record) error {
	switch r.State {
	case holt.ComputerRunning, holt.ComputerStopped, holt.ComputerPaused, holt.ComputerFailed:
		return nil
	case holt.ComputerResuming:
		_, err := s.Memory().Resume(ctx, string(r.ID), "")
		return err
	}
	if s.shutdown.ctx.Err() != nil {
		return ending()
	}
	return unfinished(r)
}

// settled waits for the verb that is at work on a computer. If its machine
// can then not be reached though it should run, that is the error.
func (s waking) settled(ctx context.Context, id holt.ComputerID) error {
	if err := s.machines.settled(ctx, id); err != nil {
		return err
	}
	r, err := s.table.find(ctx, string(id))
	if err != nil || r.State != holt.ComputerRunning || s.machines.live(id) != nil {
		return err
	}
	r, unlock, err := s.hold(ctx, string(id)) // a verb may have begun since
	if err != nil {
		return err
	}
	unlock()
	if r.State == holt.ComputerRunning && s.machines.live(id) == nil {
		if s.shutdown.ctx.Err() != nil {
			return ending()
		}
		return unreachable(r)
	}
	return nil
}

// running says whether the machine has not ended.
func (l *live) running() bool {
	select {
	case <-l.m.Done():
		return false
	default:
		return true
	}
}

// spawn runs fn in a goroutine that close waits for, unless close was called.
func (l *live) spawn(fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.wg.Go(fn)
	return true
}
