package schedule

import (
	"context"
	"slices"
	"sync"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/store/db"
)

// workers are the goroutines that carry out firings, one for each schedule with open firings.
type workers struct {
	mu     sync.Mutex
	closed bool
	set    map[holt.ScheduleID]*worker
}

type worker struct {
	again bool          // there may be another firing; guarded by workers.mu
	wake  chan struct{} // has an element then
}

// startWorker starts the worker of a schedule, or wakes it.
func (s *Store) startWorker(id holt.ScheduleID) {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	l := s.workers.set[id]
	switch {
	case s.workers.closed:
	case l == nil:
		l = &worker{wake: make(chan struct{}, 1)}
		s.workers.set[id] = l
		s.wg.Go(func() { s.follow(id, l) })
	default:
		l.again = true
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// endWorker removes a worker, unless there may be another firing.
func (s *Store) endWorker(id holt.ScheduleID, l *worker) bool {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	if l.again {
		l.again = false
		return false
	}
	delete(s.workers.set, id)
	return true
}

// follow is the goroutine of a worker: it carries out the firings of a schedule until none is open.
func (s *Store) follow(id holt.ScheduleID, l *worker) {
	for s.ctx.Err() == nil {
		f, ok, err := s.nextOpen(s.ctx, id)
		if err == nil && !ok {
			if s.endWorker(id, l) {
				return
			}
			continue
		}
		if err == nil {
			err = s.carryOut(s.ctx, l, f)
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("carry out schedule", "schedule", id, "err", err)
			_ = pause(s.ctx, tryEvery)
		}
	}
}

// tryEvery is the pause after an error on the host, as opposed to one in the computer.
const tryEvery = time.Second

// nextOpen returns the firing of a schedule that is carried out next.
func (s *Store) nextOpen(ctx context.Context, id holt.ScheduleID) (f firing, ok bool, err error) {
	err = s.read(ctx, func(tx *db.Tx) error {
		all, err := firings(tx, `WHERE schedule = ? AND `+isOpen+` ORDER BY state = 'queued', seq LIMIT 1`, id)
		if ok = len(all) > 0; ok {
			f = all[0]
		}
		return err
	})
	return f, ok, err
}

// carryOut takes a firing to its end. An error, or the end of ctx, leaves it in its recorded state.
func (s *Store) carryOut(ctx context.Context, l *worker, f firing) error {
	if f.State == holt.FiringQueued {
		if err := s.prepare(ctx, &f); err != nil {
			return err
		}
	}
	if f.State == holt.FiringStarting {
		if err := s.start(ctx, &f); err != nil {
			return err
		}
	}
	if f.State == holt.FiringRunning {
		if err := s.awaitRun(ctx, l, &f); err != nil {
			return err
		}
	}
	return s.restComputer(ctx, f)
}

// prepare records the id of a firing's run and the state of its computer, before the computer is
// woken.
func (s *Store) prepare(ctx context.Context, f *firing) error {
	for {
		c, err := s.cfg.Computers.Get(ctx, string(f.computer))
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			return err
		}
		if err := s.write(ctx, func(tx *db.Tx) error { return begin(tx, f, c.State) }); err != nil {
			return err
		}
		// Another firing may have paused or stopped the computer in between.
		is, err := s.cfg.Computers.Get(ctx, string(f.computer))
		if f.was != "" || err != nil || restsAs(is.State) == restsAs(c.State) {
			return nil
		}
	}
}

// begin is the transaction of prepare, for a computer in a given state.
func begin(tx *db.Tx, f *firing, state holt.ComputerState) error {
	r, _, err := byID(tx, f.Schedule)
	if err != nil {
		return err
	}
	f.State, f.Reason, f.Run = holt.FiringStarting, "", holt.NewRunID()
	switch as := restsAs(state); {
	case r.KeepAwake:
		f.was = ""
	case as != "":
		f.was = as
	case f.was == "": // another firing woke the computer and leaves it to this one to restore the state
		err = tx.Query(`SELECT was FROM firing WHERE computer = ? AND was <> '' LIMIT 1`, []any{f.computer}, func(row *db.Row) error {
			f.was = holt.ComputerState(row.Text(0))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return save(tx, *f)
}

// restsAs returns paused or stopped for a computer that is or is becoming so, and "" otherwise.
func restsAs(state holt.ComputerState) holt.ComputerState {
	switch state {
	case holt.ComputerPaused, holt.ComputerPausing:
		return holt.ComputerPaused
	case holt.ComputerStopped, holt.ComputerStopping:
		return holt.ComputerStopped
	}
	return ""
}

// start wakes the computer of a firing and starts its run.
func (s *Store) start(ctx context.Context, f *firing) error {
	if err := s.point("schedule/prepared"); err != nil {
		return err
	}
	var r record
	var there bool
	err := s.read(ctx, func(tx *db.Tx) (err error) { r, there, err = byID(tx, f.Schedule); return err })
	if err != nil {
		return err
	}
	if !there {
		return s.finish(ctx, f, holt.FiringFailed, "the schedule was deleted")
	}
	if r.broken != nil {
		return s.finish(ctx, f, holt.FiringFailed, "the schedule cannot be read: "+reasonOf(r.broken))
	}
	var run holt.Run
	err = s.wake(holt.WithActor(ctx, holt.Actor{Schedule: r.ID, Name: r.Name}), *f, func(ctx context.Context) error {
		spec := r.Spec
		spec.Detached = true // a slow follower must not block the run
		run, err = s.cfg.Computers.Start(ctx, f.Run, f.computer, spec)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case computer.Ending(err):
		return pause(ctx, tryEvery) // the next daemon continues
	case lacksRoom(err) && s.waits(f):
		return s.retryLater(ctx, f, err)
	case err != nil:
		s.log.WarnContext(ctx, "start run of schedule", "schedule", r.ID, "name", r.Name, "computer", f.computer, "err", err)
		return s.finish(ctx, f, holt.FiringFailed, reasonOf(err))
	}
	if err := s.point("schedule/started"); err != nil {
		return err
	}
	f.State, f.StartedAt, f.Reason, f.refused = holt.FiringRunning, &run.StartedAt, "", time.Time{}
	return s.write(ctx, func(tx *db.Tx) error { return save(tx, *f) })
}

// wake calls do, which wakes the computer of a firing, with a slot. After a failed wake it returns the same error for a
// while without a try, except for a manual firing.
func (s *Store) wake(ctx context.Context, f firing, do func(context.Context) error) error {
	c, err := s.cfg.Computers.Get(ctx, string(f.computer))
	if err != nil {
		return err
	}
	end, err := s.slots.acquire(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	if why := s.slots.failure(c.ID); why != nil && (!f.Manual || !f.refused.IsZero()) {
		if c, err = s.cfg.Computers.Get(ctx, string(f.computer)); err != nil {
			return err
		}
		if c.State != holt.ComputerRunning { // if it runs, it was repaired
			return why
		}
	}
	if err = do(ctx); ctx.Err() == nil && !computer.Ending(err) {
		s.slots.record(c.ID, err)
	}
	return err
}

// mostReason is the maximum length of a reason, bytes.
const mostReason = 1000

func reasonOf(err error) string {
	e := holt.AsError(err)
	reason := e.Message
	if e.Hint != "" {
		reason += " (" + e.Hint + ")"
	}
	if len(reason) > mostReason {
		reason = reason[:mostReason] + "…"
	}
	return reason
}

const (
	awaitFirst = 100 * time.Millisecond // poll interval of a run's state, at first
	awaitMost  = 5 * time.Second        // and later
	killAfter  = 10 * time.Second       // from SIGTERM to SIGKILL for a run that is replaced
)

// awaitRun follows the run of a firing to its end.
func (s *Store) awaitRun(ctx context.Context, l *worker, f *firing) error {
	var asked, killed, tried time.Time
	reason := ""
	for wait := awaitFirst; ; wait = min(2*wait, awaitMost) {
		run, err := s.cfg.Computers.Run(ctx, f.Run)
		switch {
		case holt.CodeOf(err) == holt.NotFound:
			return s.finish(ctx, f, holt.FiringLost, "its run is no longer on record")
		case err != nil:
			return err
		case run.State == holt.RunLost:
			return s.finish(ctx, f, holt.FiringLost, "the machine ended before the run did")
		case run.State == holt.RunExited:
			f.ExitCode, f.TimedOut, f.EndedAt = run.ExitCode, run.TimedOut, run.EndedAt
			return s.finish(ctx, f, holt.FiringExited, reason)
		}
		next, replaced, err := s.replacement(ctx, f.Schedule)
		if err != nil {
			return err
		}
		frozen, err := s.thaw(ctx, f, &tried)
		if err != nil {
			return err
		}
		if now := time.Now(); replaced && !frozen && (asked.IsZero() || now.Sub(asked) >= killAfter && now.Sub(killed) >= killAfter) {
			signal := "SIGKILL"
			if reason = "replaced by the run of " + stamp(next.Due); asked.IsZero() {
				signal, asked = "SIGTERM", now
			} else {
				killed = now
			}
			if err := s.cfg.Computers.Signal(ctx, f.Run, signal); err != nil {
				s.log.WarnContext(ctx, "signal run of schedule", "schedule", f.Schedule, "run", f.Run, "err", err)
			}
			wait = awaitFirst
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.wake:
		case <-ctx.Done():
		}
		if t.Stop(); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// replacement returns the queued firing that replaces the one that is carried out.
func (s *Store) replacement(ctx context.Context, id holt.ScheduleID) (f firing, ok bool, err error) {
	err = s.read(ctx, func(tx *db.Tx) error {
		all, err := firings(tx, `WHERE schedule = ? AND state = 'queued' AND replaces LIMIT 1`, id)
		if ok = len(all) > 0; ok {
			f = all[0]
		}
		return err
	})
	return f, ok, err
}

// finish records the end of a firing. If another one of its schedule is queued, the computer stays awake for
// it, and that one restores the computer's state.
func (s *Store) finish(ctx context.Context, f *firing, state holt.FiringState, reason string) error {
	f.State, f.Reason = state, reason
	if f.EndedAt == nil {
		now := s.cfg.Now().UTC()
		f.EndedAt = &now
	}
	return s.write(ctx, func(tx *db.Tx) error {
		waiting, err := firings(tx, `WHERE schedule = ? AND state = 'queued' ORDER BY seq LIMIT 1`, f.Schedule)
		if err != nil {
			return err
		}
		if len(waiting) > 0 {
			waiting[0].was, f.was = f.was, ""
			if err := save(tx, waiting[0]); err != nil {
				return err
			}
		}
		if err := save(tx, *f); err != nil {
			return err
		}
		return prune(tx, f.Schedule)
	})
}

// restComputer pauses or stops the computer of an ended firing, as it was before, unless something
// else uses it.
func (s *Store) restComputer(ctx context.Context, f firing) error {
	if f.State.Running() {
		return nil
	}
	if err := s.point("schedule/ended"); err != nil {
		return err
	}
	if f.was != "" {
		err := s.cfg.Computers.Rest(ctx, f.computer, f.was)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case computer.Ending(err):
			return nil // the next daemon does it
		case err != nil && holt.CodeOf(err) != holt.NotFound:
			s.log.WarnContext(ctx, "pause or stop computer after schedule", "schedule", f.Schedule, "computer", f.computer, "as", f.was, "err", err)
		}
		f.was = ""
	}
	return s.write(ctx, func(tx *db.Tx) error {
		if err := save(tx, f); err != nil {
			return err
		}
		// The firings of a deleted schedule are not kept.
		return tx.Exec(`DELETE FROM firing WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM schedule WHERE id = firing.schedule)`, f.seq)
	})
}

// restAll pauses or stops the computers that the daemon before this one woke and did not restore.
func (s *Store) restAll(ctx context.Context) {
	var owed []firing
	err := s.read(ctx, func(tx *db.Tx) (err error) {
		owed, err = firings(tx, `WHERE was <> '' AND NOT `+isOpen)
		return err
	})
	for _, f := range owed {
		if err == nil {
			err = s.restComputer(ctx, f)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "pause or stop computers after schedules", "err", err)
	}
}

// takeOver recomputes next times, marks late firings as missed, and returns the schedules with open firings.
func (s *Store) takeOver(ctx context.Context) (open []holt.ScheduleID, err error) {
	now := s.cfg.Now().UTC()
	var left []firing
	err = s.write(ctx, func(tx *db.Tx) error {
		all, err := times(tx, ``)
		if err != nil {
			return err
		}
		for _, r := range all { // the rules of time zones may have changed
			if invalid := r.invalid(); invalid != nil {
				s.skip(r.ID, invalid)
				continue
			}
			table, err := Parse(r.Cron, r.TimeZone)
			if err != nil {
				return err
			}
			if next := table.Next(r.after); !next.Equal(r.next) {
				r.next = next
				if err := saveTimes(tx, r); err != nil {
					return err
				}
			}
		}
		left, err = firings(tx, `WHERE `+isOpen+` ORDER BY seq`)
		return err
	})
	for _, f := range left {
		if err != nil {
			return nil, err
		}
		if err = s.tooLate(ctx, f, now); !slices.Contains(open, f.Schedule) {
			open = append(open, f.Schedule)
		}
	}
	return open, err
}

// tooLate marks a firing as missed if its run was not started in time and its policy is skip.
func (s *Store) tooLate(ctx context.Context, f firing, now time.Time) error {
	if f.Manual || f.State == holt.FiringRunning || now.Sub(f.Due) <= grace || f.State == holt.FiringQueued && f.Reason != "" {
		return nil
	}
	var r record
	err := s.read(ctx, func(tx *db.Tx) (err error) { r, _, err = byID(tx, f.Schedule); return err })
	if err != nil || r.Missed != holt.MissedSkip || !f.refused.IsZero() && s.waits(&f) {
		return err
	}
	if f.State == holt.FiringStarting {
		if _, err := s.cfg.Computers.Run(ctx, f.Run); holt.CodeOf(err) != holt.NotFound {
			return err
		}
	}
	return s.finish(ctx, &f, holt.FiringMissed, "the daemon ended before the run started; the policy for missed times is skip")
}
