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

// lanes are the goroutines that carry out firings, one for each schedule that has some.
type lanes struct {
	mu     sync.Mutex
	closed bool
	set    map[holt.ScheduleID]*lane
}

type lane struct {
	again bool          // there may be another firing; guarded by lanes.mu
	bell  chan struct{} // holds one then
}

// pursue has the firings of a schedule carried out that go on.
func (s *Store) pursue(id holt.ScheduleID) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	l := s.lanes.set[id]
	switch {
	case s.lanes.closed:
	case l == nil:
		l = &lane{bell: make(chan struct{}, 1)}
		s.lanes.set[id] = l
		s.wg.Go(func() { s.follow(id, l) })
	default:
		l.again = true
		select {
		case l.bell <- struct{}{}:
		default:
		}
	}
}

// rests ends a lane unless there may be another firing.
func (s *Store) rests(id holt.ScheduleID, l *lane) bool {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if l.again {
		l.again = false
		return false
	}
	delete(s.lanes.set, id)
	return true
}

// follow is a lane: it carries out the firings of a schedule until none goes on.
func (s *Store) follow(id holt.ScheduleID, l *lane) {
	for s.ctx.Err() == nil {
		f, ok, err := s.head(s.ctx, id)
		if err == nil && !ok {
			if s.rests(id, l) {
				return
			}
			continue
		}
		if err == nil {
			err = s.carry(s.ctx, l, f)
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("carry out schedule", "schedule", id, "err", err)
			_ = pause(s.ctx, tryEvery)
		}
	}
}

// tryEvery is how long what failed here, not in the computer, waits for another try.
const tryEvery = time.Second

// head returns the firing of a schedule that is to be carried out.
func (s *Store) head(ctx context.Context, id holt.ScheduleID) (f firing, ok bool, err error) {
	err = s.read(ctx, func(tx *db.Tx) error {
		all, err := firings(tx, `WHERE schedule = ? AND `+goesOn+` ORDER BY state = 'queued', seq LIMIT 1`, id)
		if ok = len(all) > 0; ok {
			f = all[0]
		}
		return err
	})
	return f, ok, err
}

// carry brings a firing to its end. An error, or the end of ctx, leaves it where it is.
func (s *Store) carry(ctx context.Context, l *lane, f firing) error {
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
		if err := s.await(ctx, l, &f); err != nil {
			return err
		}
	}
	return s.rest(ctx, f)
}

// prepare writes down, before anything is done, the id that the run of a firing is to have, and how
// its computer rests now.
func (s *Store) prepare(ctx context.Context, f *firing) error {
	for {
		c, err := s.cfg.Computers.Get(ctx, string(f.computer))
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			return err
		}
		if err := s.write(ctx, func(tx *db.Tx) error { return begin(tx, f, c.State) }); err != nil {
			return err
		}
		// Another firing may have let it rest in between.
		is, err := s.cfg.Computers.Get(ctx, string(f.computer))
		if f.was != "" || err != nil || restsAs(is.State) == restsAs(c.State) {
			return nil
		}
	}
}

// begin is prepare of a computer that is in some state.
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
	case f.was == "": // another one may have woken it, and leave it to this one
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

// restsAs is how a computer rests that is in some state, or is about to; "" if it does not.
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
		spec.Detached = true // whoever looks at it holds it up at no time
		run, err = s.cfg.Computers.Start(ctx, f.Run, f.computer, spec)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case computer.Ending(err):
		return pause(ctx, tryEvery) // unless that is called off, the next daemon goes on
	case lacksRoom(err) && s.waits(f):
		return s.tryLater(ctx, f, err)
	case err != nil:
		s.log.WarnContext(ctx, "schedule could not run", "schedule", r.ID, "name", r.Name, "computer", f.computer, "err", err)
		return s.finish(ctx, f, holt.FiringFailed, reasonOf(err))
	}
	if err := s.point("schedule/started"); err != nil {
		return err
	}
	f.State, f.StartedAt, f.Reason, f.refused = holt.FiringRunning, &run.StartedAt, "", time.Time{}
	return s.write(ctx, func(tx *db.Tx) error { return save(tx, *f) })
}

// wake does what wakes the computer of a firing, in its turn. One that did not come up is left alone for a while, and the answer
// is the same then, but when somebody has just asked.
func (s *Store) wake(ctx context.Context, f firing, do func(context.Context) error) error {
	c, err := s.cfg.Computers.Get(ctx, string(f.computer))
	if err != nil {
		return err
	}
	end, err := s.turns.take(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	if why := s.turns.leave(c.ID); why != nil && (!f.Manual || !f.refused.IsZero()) {
		if c, err = s.cfg.Computers.Get(ctx, string(f.computer)); err != nil {
			return err
		}
		if c.State != holt.ComputerRunning { // else somebody has mended it
			return why
		}
	}
	if err = do(ctx); ctx.Err() == nil && !computer.Ending(err) {
		s.turns.ended(c.ID, err)
	}
	return err
}

// mostReason bounds what is kept of an error, bytes.
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
	awaitFirst = 100 * time.Millisecond // how often a run is looked at whether it has ended, at first
	awaitMost  = 5 * time.Second        // and later
	killAfter  = 10 * time.Second       // how long a run has to end that another takes the place of
)

// await follows the run of a firing to its end.
func (s *Store) await(ctx context.Context, l *lane, f *firing) error {
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
			if reason = "the one of " + stamp(next.Due) + " took its place"; asked.IsZero() {
				signal, asked = "SIGTERM", now
			} else {
				killed = now
			}
			if err := s.cfg.Computers.Signal(ctx, f.Run, signal); err != nil {
				s.log.WarnContext(ctx, "end run of schedule", "schedule", f.Schedule, "run", f.Run, "err", err)
			}
			wait = awaitFirst
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.bell:
		case <-ctx.Done():
		}
		if t.Stop(); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// replacement returns the firing that takes the place of the one that goes on.
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

// finish writes down the end of a firing. If another one of its schedule waits, the computer does not
// rest in between: that is left to it.
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

// rest lets the computer of a firing that has ended rest as it did before, unless something
// else uses it.
func (s *Store) rest(ctx context.Context, f firing) error {
	if f.State.GoesOn() {
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
			return nil // the next daemon does
		case err != nil && holt.CodeOf(err) != holt.NotFound:
			s.log.WarnContext(ctx, "let computer rest after schedule", "schedule", f.Schedule, "computer", f.computer, "as", f.was, "err", err)
		}
		f.was = ""
	}
	return s.write(ctx, func(tx *db.Tx) error {
		if err := save(tx, f); err != nil {
			return err
		}
		// Of a schedule that was deleted nothing has to be known any more.
		return tx.Exec(`DELETE FROM firing WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM schedule WHERE id = firing.schedule)`, f.seq)
	})
}

// restAll lets computers rest that a daemon before this one woke and did not come to.
func (s *Store) restAll(ctx context.Context) {
	var owed []firing
	err := s.read(ctx, func(tx *db.Tx) (err error) {
		owed, err = firings(tx, `WHERE was <> '' AND NOT `+goesOn)
		return err
	})
	for _, f := range owed {
		if err == nil {
			err = s.rest(ctx, f)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "let computers rest after schedules", "err", err)
	}
}

// takeOver settles what a daemon before this one left, and returns the schedules with firings that go on.
func (s *Store) takeOver(ctx context.Context) (open []holt.ScheduleID, err error) {
	now := s.cfg.Now().UTC()
	var left []firing
	err = s.write(ctx, func(tx *db.Tx) error {
		all, err := times(tx, ``)
		if err != nil {
			return err
		}
		for _, r := range all { // the rules of a time zone may be others now
			if wrong := r.wrong(); wrong != nil {
				s.skip(r.ID, wrong)
				continue
			}
			table, err := Parse(r.Cron, r.TimeZone)
			if err != nil {
				return err
			}
			if next := table.Next(r.after); !next.Equal(r.next) {
				r.next = next
				if err := moveOn(tx, r); err != nil {
					return err
				}
			}
		}
		left, err = firings(tx, `WHERE `+goesOn+` ORDER BY seq`)
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

// tooLate takes a firing for missed whose run was not started in time, if that is its policy.
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
	return s.finish(ctx, &f, holt.FiringMissed, "the daemon ended before its run had started; the policy for missed times is skip")
}
