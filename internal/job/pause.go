package job

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/computer"
)

// mostResuming is how long failed resumes of a job's computer are retried. It is the job's timeout if that is longer.
const mostResuming = time.Hour

var errOverdue = holt.Errorf(holt.Timeout, "the command exceeded its timeout and the guest did not end it")

// runningComputer returns the job's computer once it runs. It returns errLost if the computer cannot run again, and !ok if
// there is none. It resumes a paused computer, and retries temporary failures, so that the command's work is not lost.
func (w *worker) runningComputer(ctx context.Context) (c holt.Computer, ok bool, err error) {
	defer func() { w.setReason("") }()
	began := time.Now()
	for pause := pollEvery; ; pause = min(2*pause, mostPause) {
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
		// PausedBy is known only when the pause is complete. A computer that was paused for the daemon's end stays so.
		if c.State != holt.ComputerPausing && !w.s.cfg.Computers.Draining() {
			if err := w.resumeRefused(c); err != nil {
				return c, true, err
			}
			now, err := w.s.cfg.Computers.Resume(ctx, string(c.ID), "")
			switch {
			case err == nil:
				return now, true, nil
			case ctx.Err() != nil:
			case !temporary(err) || time.Since(began) > max(w.timeout(), mostResuming):
				return c, true, fmt.Errorf("resume the job's computer: %w", err)
			default:
				w.s.log.Warn("resume the computer of a job: will retry", "job", w.r.ID, "computer", c.ID, "again_in", pause, "err", err)
				w.setReason("its computer is paused and cannot be resumed yet: " + err.Error())
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return c, true, context.Cause(ctx)
		}
	}
}

// temporary reports whether a later try can succeed: when resources are free, or with the next daemon.
func temporary(err error) bool {
	switch holt.CodeOf(err) {
	case holt.TooMany, holt.OutOfSpace, holt.Unavailable, holt.Timeout:
		return true
	}
	return false
}

// resumeRefused returns the error of a job whose computer was paused by a limit or a budget, and nil otherwise.
func (w *worker) resumeRefused(c holt.Computer) error {
	if c.State != holt.ComputerPaused {
		return nil
	}
	switch c.PausedBy {
	case computer.PausedByLimit:
		return holt.Errorf(holt.TooMany, "the job's computer was paused by limit: it reached the maximum run time of the tenant %s", w.tenant).
			WithHint("holt limit show shows it; an admin can raise it: holt limit set --tenant %s --max-run-time DURATION", w.tenant)
	case computer.PausedByBudget:
		return holt.Errorf(holt.TooMany, "the job's computer was paused by budget: the budget is exhausted").
			WithHint("run the job again with a higher budget, or without one")
	}
	return nil
}

// setReason records why the job waits; "": it does not.
func (w *worker) setReason(reason string) {
	if w.r.Reason == reason {
		return
	}
	w.r.Reason = reason
	if err := w.save(w.ctx); err != nil && w.ctx.Err() == nil {
		w.s.log.Warn("record why a job waits", "job", w.r.ID, "err", err)
	}
}

func (w *worker) timeout() time.Duration { return time.Duration(w.r.run.TimeoutMS) * time.Millisecond }

// watch resumes the computer whenever it is paused while the command is followed, which it is since began. It returns
// the error that ends the job: errOverdue, or that of a resume. It returns nil at the end of ctx.
func (w *worker) watch(ctx context.Context, began time.Time) error {
	var machine, due time.Time
	for {
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil
		}
		c, ok, err := w.runningComputer(ctx)
		switch {
		case !ok || err == errLost: // follow gets the end of the run
			continue
		case err != nil:
			return err
		}
		if from := w.countedFrom(c); !from.Equal(machine) {
			machine, due = from, w.due(from, began, time.Now())
		}
		if time.Now().After(due) {
			return errOverdue
		}
	}
}

// countedFrom returns when the command began, or when its machine was resumed last.
func (w *worker) countedFrom(c holt.Computer) time.Time {
	if c.StartedAt != nil && c.StartedAt.After(*w.r.StartedAt) {
		return *c.StartedAt
	}
	return *w.r.StartedAt
}

// due returns when the guest must have ended the command: grace after its timeout, counted since from, and at least
// grace after began. The command's time runs only while its machine does, by a clock that does not advance while the
// host is suspended.
func (w *worker) due(from, began, now time.Time) time.Time {
	return now.Add(max(w.timeout()-now.Sub(from), -now.Sub(began)) + grace)
}
