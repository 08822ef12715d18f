package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

const (
	// clockEvery is the longest interval between reads of the wall clock: timers do not
	// advance while the host is suspended, and do not notice a clock that is set.
	clockEvery = time.Minute
	// clockStep is the least step back of the clock that schedules follow, as in cron. After a smaller step
	// due times that have fired do not fire again.
	clockStep = 3 * time.Hour
)

// watch calls fireDue until ctx ends.
func (s *Store) watch(ctx context.Context) {
	for {
		wait := clockEvery
		next, err := s.fireDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.ErrorContext(ctx, "find due schedules", "err", err)
			wait = clockEvery / 6
		case !next.IsZero():
			wait = min(wait, max(0, next.Sub(s.cfg.Now())))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// skip logs once that an unreadable schedule does not fire.
func (s *Store) skip(id holt.ScheduleID, why error) {
	if !s.skipped[id] {
		s.skipped[id] = true
		s.log.Error("read schedule: it does not fire; repair it with holt schedule update, or delete it", "schedule", id, "err", why)
	}
}

// fireDue fires the schedules that are due, and returns the next due time; zero: none. An error of one schedule does not
// affect the others.
func (s *Store) fireDue(ctx context.Context) (next time.Time, err error) {
	now := s.cfg.Now().UTC()
	var due []record
	err = s.read(ctx, func(tx *db.Tx) (err error) {
		due, err = times(tx, `WHERE enabled AND (next > 0 AND next <= ?1 OR after > ?2) ORDER BY next`, nanos(now), nanos(now.Add(clockStep)))
		return err
	})
	if err != nil {
		return next, err
	}
	var failed error
	for _, r := range due {
		if invalid := r.invalid(); invalid != nil {
			s.skip(r.ID, invalid)
		} else if err := s.fire(ctx, r.ID, now); err != nil {
			failed = errors.Join(failed, fmt.Errorf("fire schedule %s: %w", r.ID, err))
		}
	}
	err = s.read(ctx, func(tx *db.Tx) error { // schedules that are due and failed to fire are retried later
		return tx.Query(`SELECT coalesce(min(next), 0) FROM schedule WHERE enabled AND next > ?`, []any{nanos(now)}, func(row *db.Row) error { next = timeOf(row.Int64(0)); return nil })
	})
	return next, errors.Join(failed, err)
}

// fire records a firing for each due time of a schedule up to now.
func (s *Store) fire(ctx context.Context, id holt.ScheduleID, now time.Time) error {
	fired := false
	err := s.write(ctx, func(tx *db.Tx) error {
		r, there, err := byID(tx, id)
		if err != nil || !there || !r.Enabled {
			return err
		}
		table, err := Parse(r.Cron, r.TimeZone)
		if err != nil {
			return err
		}
		if r.after.After(now.Add(clockStep)) {
			s.log.WarnContext(ctx, "the clock went back: the schedule follows the new time", "schedule", id, "was", r.after, "now", now)
			r.after, r.next = now, table.Next(now)
			return saveTimes(tx, r)
		}
		var f found
		table.Between(r.after, now, f.add)
		if f.count > 0 {
			waiting, err := firings(tx, `WHERE schedule = ? AND state = 'queued'`, id)
			if err != nil {
				return err
			}
			missed, until, fire := f.plan(r.Missed, now, len(waiting))
			if err := recordMissed(tx, r, f.first, until, missed, now); err != nil {
				return err
			}
			if fired, err = fireAll(tx, r, fire, now); err != nil {
				return err
			}
			r.after = f.last[len(f.last)-1]
		}
		r.next = table.Next(r.after)
		return saveTimes(tx, r)
	})
	if err == nil {
		err = s.point("schedule/fired")
	}
	if err == nil && fired {
		s.startWorker(id)
	}
	return err
}

// recordMissed records count due times as one missed firing.
func recordMissed(tx *db.Tx, r record, first, until time.Time, count int, now time.Time) error {
	if count == 0 {
		return nil
	}
	f := firing{Firing: holt.Firing{
		Schedule: r.ID, Due: first, Until: &until, Count: count, State: holt.FiringMissed, EndedAt: &now,
		Reason: "the daemon did not run, or the host was suspended; the policy for missed times is " + string(r.Missed),
	}, computer: r.ComputerID}
	if count == 1 {
		f.Until = nil
	}
	if err := add(tx, &f); err != nil {
		return err
	}
	return prune(tx, r.ID)
}

// fireAll records the firings of due times, the earliest first. Several run one after the
// other, whatever the overlap policy. fired: at least one of them will run.
func fireAll(tx *db.Tx, r record, dues []time.Time, now time.Time) (fired bool, err error) {
	if len(dues) > 0 {
		if err := requestThaw(tx, r.ID, now); err != nil {
			return false, err
		}
	}
	for _, due := range dues {
		f := firing{Firing: holt.Firing{Schedule: r.ID, Due: due, State: holt.FiringQueued}, computer: r.ComputerID}
		if len(dues) == 1 {
			if err := applyOverlap(tx, r, &f, now); err != nil {
				return false, err
			}
		}
		if err := add(tx, &f); err != nil {
			return false, err
		}
		fired = fired || f.State != holt.FiringSkipped
	}
	return fired, prune(tx, r.ID)
}

// applyOverlap applies the overlap policy to a firing if another one of its schedule is open.
func applyOverlap(tx *db.Tx, r record, f *firing, now time.Time) error {
	on, err := firings(tx, `WHERE schedule = ? AND `+isOpen+` ORDER BY state = 'queued', seq`, r.ID)
	if err != nil || len(on) == 0 {
		return err
	}
	first := slices.IndexFunc(on, func(f firing) bool { return f.State == holt.FiringQueued })
	f.Reason = "the run of " + stamp(on[0].Due) + " has not ended"
	switch {
	case r.Overlap == holt.OverlapReplace:
		f.replaces = true
		for _, q := range on[max(first, 0):] {
			if q.State == holt.FiringQueued {
				q.State, q.Reason, q.EndedAt = holt.FiringSkipped, "replaced by the run of "+stamp(f.Due), &now
				f.was, q.was = cmp.Or(f.was, q.was), ""
				if err := save(tx, q); err != nil {
					return err
				}
			}
		}
		return nil
	case r.Overlap == holt.OverlapQueue && first < 0:
		return nil
	case r.Overlap == holt.OverlapQueue:
		f.Reason = "the run of " + stamp(on[first].Due) + " is queued already"
	}
	f.State, f.EndedAt = holt.FiringSkipped, &now
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Run fires a schedule now, whether it is enabled or not. It returns when the run has
// started or has failed to start, or waits for the previous run or for room.
//
// Errors: NotFound, Conflict (the previous run has not ended and the overlap policy is skip, or a run
// is queued already; several schedules have the name ref).
func (s *Store) Run(ctx context.Context, ref, key string) (holt.Firing, error) {
	seq, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[int64]{
		Key: key, Method: "schedule.run", Request: ref,
		Act:   func(ctx context.Context, claim *idempotency.Claim) (int64, error) { return s.fireNow(ctx, ref, claim) },
		Again: func(_ context.Context, seq string) (int64, error) { return strconv.ParseInt(seq, 10, 64) },
	})
	if err != nil {
		return holt.Firing{}, err
	}
	return s.begun(ctx, seq)
}

func (s *Store) fireNow(ctx context.Context, ref string, claim *idempotency.Claim) (int64, error) {
	r, err := s.find(ctx, ref)
	if err != nil {
		return 0, err
	}
	now := s.cfg.Now().UTC()
	f := firing{Firing: holt.Firing{Schedule: r.ID, Due: now, State: holt.FiringQueued, Manual: true}, computer: r.ComputerID}
	err = s.write(ctx, func(tx *db.Tx) error {
		if _, there, err := byID(tx, r.ID); err != nil || !there {
			return cmp.Or(err, notFound(ref))
		}
		if err := errors.Join(requestThaw(tx, r.ID, now), applyOverlap(tx, r, &f, now)); err != nil || f.State == holt.FiringSkipped {
			return err
		}
		if err := add(tx, &f); err != nil {
			return err
		}
		return claim.Bind(tx, strconv.FormatInt(f.seq, 10))
	})
	if err == nil && f.State == holt.FiringSkipped {
		err = holt.Errorf(holt.Conflict, "%s cannot run now: %s", r.Name, f.Reason).WithHint("try again when it has ended, or change the policy: holt schedule update --overlap queue (or replace)")
	}
	if err == nil {
		s.startWorker(r.ID)
	}
	return f.seq, err
}

// begun waits until a firing has started, has failed, or has a reason to wait.
func (s *Store) begun(ctx context.Context, seq int64) (holt.Firing, error) {
	for {
		var all []firing
		err := s.read(ctx, func(tx *db.Tx) (err error) {
			all, err = firings(tx, `WHERE seq = ?`, seq)
			return err
		})
		switch {
		case err != nil:
			return holt.Firing{}, err
		case len(all) == 0:
			return holt.Firing{}, holt.Errorf(holt.Conflict, "the schedule was deleted before its run started")
		case all[0].State != holt.FiringStarting && all[0].State != holt.FiringQueued || all[0].Reason != "":
			return *all[0].shown(), nil
		}
		if err := pause(ctx, begunEvery); err != nil {
			return holt.Firing{}, err
		}
	}
}

// begunEvery is the poll interval of begun.
const begunEvery = 50 * time.Millisecond

// pause sleeps for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(cmp.Or(d, time.Nanosecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
