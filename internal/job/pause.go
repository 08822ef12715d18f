package job

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/computer"
)

// mostResuming is how long a job's computer is tried to be resumed at least; a job that may take longer waits that long.
const mostResuming = time.Hour

var errOverdue = holt.Errorf(holt.Timeout, "the guest did not end the command when its time was over")

// standing returns the job's computer once it runs; errLost if it never will, and none if there is none. One that is
// paused is resumed, again and again where that is refused for now: the command in it is not thrown away for that.
func (w *worker) standing(ctx context.Context) (c holt.Computer, ok bool, err error) {
	defer func() { w.because("") }()
	began := time.Now()
	for pause := look; ; pause = min(2*pause, mostPause) {
		all, err := w.s.cfg.Computers.OfJob(ctx, w.r.ID)
		if err != nil || len(all) == 0 {
			return c, false, err
		}
		switch c = all[0]; {
		case len(all) > 1:
			return c, true, errLost
		case c.State == holt.ComputerRunning:
			return c, true, nil
		case c.State != holt.ComputerPaused && c.State != holt.ComputerPausing && c.State != holt.ComputerResuming:
			return c, true, errLost
		}
		// Who pauses it is known when it is paused; and what is paused for the daemon's end is not to be woken.
		if c.State != holt.ComputerPausing && !w.s.cfg.Computers.Draining() {
			if err := w.mayNot(c); err != nil {
				return c, true, err
			}
			now, err := w.s.cfg.Computers.Resume(ctx, string(c.ID), "")
			switch {
			case err == nil:
				return now, true, nil
			case ctx.Err() != nil:
			case !forNow(err) || time.Since(began) > max(w.timeout(), mostResuming):
				return c, true, fmt.Errorf("resume the job's computer: %w", err)
			default:
				w.s.log.Warn("a job's computer is paused and cannot be resumed; trying again", "job", w.r.ID, "computer", c.ID, "again_in", pause, "err", err)
				w.because("its computer is paused, and cannot be resumed yet: " + err.Error())
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return c, true, context.Cause(ctx)
		}
	}
}

// forNow says whether what was refused may be done later: others make room, or the next daemon does it.
func forNow(err error) bool {
	switch holt.CodeOf(err) {
	case holt.TooMany, holt.OutOfSpace, holt.Unavailable, holt.Timeout:
		return true
	}
	return false
}

// mayNot says why a job's paused computer is not resumed: whoever bounds what it uses has paused it.
func (w *worker) mayNot(c holt.Computer) error {
	if c.State != holt.ComputerPaused {
		return nil
	}
	switch c.PausedBy {
	case computer.PausedByLimit:
		return holt.Errorf(holt.TooMany, "the job's computer was paused by limit: one of the tenant %s may run no longer in one go", w.tenant).
			WithHint("holt limit show says how long; a job that takes longer needs a higher one: holt limit set --tenant %s --max-run-time DURATION", w.tenant)
	case computer.PausedByBudget:
		return holt.Errorf(holt.TooMany, "the job's computer was paused by budget: what that allows is used").
			WithHint("run the job again with a higher one, or with none")
	}
	return nil
}

// because writes down why the job stands still; "": it goes on.
func (w *worker) because(reason string) {
	if w.r.Reason == reason {
		return
	}
	w.r.Reason = reason
	if err := w.save(w.ctx); err != nil && w.ctx.Err() == nil {
		w.s.log.Warn("write down why a job stands still", "job", w.r.ID, "err", err)
	}
}

func (w *worker) timeout() time.Duration { return time.Duration(w.r.run.TimeoutMS) * time.Millisecond }

// watch sees to it, while the command is followed, that its machine goes on, and says why it is not followed any longer.
// Who follows has been doing that since began.
func (w *worker) watch(ctx context.Context, began time.Time) error {
	var machine, due time.Time
	for {
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return nil
		}
		c, ok, err := w.standing(ctx)
		switch {
		case !ok || err == errLost: // who follows hears how the run ended
			continue
		case err != nil:
			return err
		}
		if from := w.from(c); !from.Equal(machine) {
			machine, due = from, w.due(from, began, time.Now())
		}
		if time.Now().After(due) {
			return errOverdue
		}
	}
}

// from is when the command began, or its machine went on last.
func (w *worker) from(c holt.Computer) time.Time {
	if c.StartedAt != nil && c.StartedAt.After(*w.r.StartedAt) {
		return *c.StartedAt
	}
	return *w.r.StartedAt
}

// due is when the guest has ended a command whose time has run since from, and runs only while its machine does: by a
// clock that stands while the host sleeps. Who has followed only since began gets what happened before.
func (w *worker) due(from, began, now time.Time) time.Time {
	return now.Add(max(w.timeout()-now.Sub(from), -now.Sub(began)) + grace)
}
