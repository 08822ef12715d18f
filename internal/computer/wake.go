package computer

import (
	"context"
	"time"

	"holt"
)

// waker gives callers the running machine of a computer.
type waker struct {
	*registry
	rows          idleTable
	start, resume func(ctx context.Context, ref string) (holt.Computer, error)
}

// wakeStep brings a computer in one state closer to running.
type wakeStep struct {
	wakes bool // the computer runs afterwards
	do    func(*waker, context.Context, record) error
}

// wakeSteps are the steps by state. In all other states a verb is at work, which is waited for.
var wakeSteps = map[holt.ComputerState]wakeStep{
	holt.ComputerRunning: {false, (*waker).awaitMachine},
	holt.ComputerStopped: {true, func(s *waker, ctx context.Context, r record) error {
		_, err := s.verb(ctx, "computer.start", string(r.ID), "", s.start)
		return err
	}},
	holt.ComputerPaused: {true, func(s *waker, ctx context.Context, r record) error {
		_, err := s.verb(ctx, "computer.resume", string(r.ID), "", s.resume)
		return err
	}},
	holt.ComputerFailed: {false, func(_ *waker, _ context.Context, r record) error { return wrongState(r) }},
}

// wake returns the running machine of a computer; the caller has marked its use, see [waker.use]. A stopped
// computer is started and a paused one resumed, which takes at most [Limits].Wake of the slowest engine.
func (s *waker) wake(ctx context.Context, ref string, use holt.Use) (record, *live, error) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.longestWake())
	defer cancel()
	r, l, err := s.untilRunning(bounded, ref, use)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return record{}, nil, s.asleep(ctx, ref)
	}
	return r, l, err
}

func (s *waker) untilRunning(ctx context.Context, ref string, use holt.Use) (record, *live, error) {
	began := time.Now()
	for {
		r, err := s.table.find(ctx, ref)
		if err != nil {
			return record{}, nil, err
		}
		if l := s.ready(r); l != nil {
			return r, l, nil
		}
		step, ok := wakeSteps[r.State]
		if !ok {
			step.do = (*waker).awaitVerb
		}
		if err := step.do(s, ctx, r); err != nil {
			return record{}, nil, err
		}
		if step.wakes {
			s.cfg.Observe.wake(r.State, began)
			s.woken(ctx, r.ID, began, use)
		}
	}
}

// ready returns a computer's machine if it runs and is not about to be paused. That is asked first:
// while the caller's use lasts no pause begins.
func (s *waker) ready(r record) *live {
	if r.State != holt.ComputerRunning || s.uses.rests(r.ID) {
		return nil
	}
	if l := s.machines.live(r.ID); l != nil && l.running() {
		return l
	}
	return nil
}

// awaitMachine waits until the end of a running computer's machine is on record.
func (s *waker) awaitMachine(ctx context.Context, r record) error {
	if err := s.settled(ctx, r.ID); err != nil {
		return err
	}
	backoff(ctx, 0)
	return nil
}

// awaitVerb waits for the verb at work on a computer, and settles what one that has failed left.
func (s *waker) awaitVerb(ctx context.Context, r record) error {
	r, unlock, err := s.hold(ctx, string(r.ID))
	if err != nil {
		return err
	}
	unlock()
	switch r.State {
	case holt.ComputerRunning, holt.ComputerStopped, holt.ComputerPaused, holt.ComputerFailed:
		return nil
	case holt.ComputerResuming:
		_, err := s.verb(ctx, "computer.resume", string(r.ID), "", s.resume)
		return err
	}
	if s.shutdown.ctx.Err() != nil {
		return ending()
	}
	return unfinished(r)
}

// asleep is the error for a computer that did not wake in time.
func (s *waker) asleep(ctx context.Context, ref string) error {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return err
	}
	is := string(r.State)
	if other := s.machines.atWork(r.ID); other != nil {
		is += ", and waits for " + other.String()
	}
	return holt.Errorf(holt.Timeout, "%s did not wake within %v: it is %s", r.Name, holt.ShortDuration(s.cfg.longestWake()), is).
		WithHint("it may still be waking: check its state with holt computer get %s, then try again", r.Name)
}

// woken records what woke a computer and how long that took, unless that is on record already.
func (s *waker) woken(ctx context.Context, id holt.ComputerID, began time.Time, use holt.Use) {
	if err := s.rows.woken(ctx, id, began, time.Now(), use); err != nil {
		s.log.WarnContext(ctx, "record what woke a computer", "computer", id, "err", err)
	}
}

// settled waits for the verb that is at work on a computer. It returns an error if the computer is
// running afterwards and its machine cannot be reached.
func (s *waker) settled(ctx context.Context, id holt.ComputerID) error {
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
