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
	// lookEvery is how long the wall clock is not looked at, at most: the timers of a process
	// stand while its host sleeps, and know nothing of a clock that was set.
	lookEvery = time.Minute
	// clockStep is how far back a clock goes that was wrong before, as for cron: what it is set back
	// by less has been accounted for.
	clockStep = 3 * time.Hour
)

// watch fires what is due until ctx ends.
func (s *Store) watch(ctx context.Context) {
	for {
		wait := lookEvery
		next, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.ErrorContext(ctx, "look what is due", "err", err)
			wait = lookEvery / 6
		case !next.IsZero():
			wait = min(wait, max(0, next.Sub(s.cfg.Now())))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.bell:
		case <-t.C:
		}
		t.Stop()
	}
}

// skip says once of a schedule that cannot be read that it does not fire; all others do.
func (s *Store) skip(id holt.ScheduleID, why error) {
	if !s.skipped[id] {
		s.skipped[id] = true
		s.log.Error("a schedule cannot be read and does not fire; holt schedule update or delete mends that", "schedule", id, "err", why)
	}
}

// look fires what is due now, and says what is due next; zero: nothing. What fails keeps nothing else from firing.
func (s *Store) look(ctx context.Context) (next time.Time, err error) {
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
		if wrong := r.wrong(); wrong != nil {
			s.skip(r.ID, wrong)
		} else if err := s.fire(ctx, r.ID, now); err != nil {
			failed = errors.Join(failed, fmt.Errorf("fire schedule %s: %w", r.ID, err))
		}
	}
	err = s.read(ctx, func(tx *db.Tx) error { // what is due and did not fire is looked at again in a while
		return tx.Query(`SELECT coalesce(min(next), 0) FROM schedule WHERE enabled AND next > ?`, []any{nanos(now)}, func(row *db.Row) error { next = timeOf(row.Int64(0)); return nil })
	})
	return next, errors.Join(failed, err)
}

// fire accounts for all due times of a schedule up to now.
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
			s.log.WarnContext(ctx, "the clock went back: the schedule goes by the new one", "schedule", id, "was", r.after, "now", now)
			r.after, r.next = now, table.Next(now)
			return moveOn(tx, r)
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
		return moveOn(tx, r)
	})
	if err == nil {
		err = s.point("schedule/fired")
	}
	if err == nil && fired {
		s.pursue(id)
	}
	return err
}

// recordMissed writes down due times that nobody will make up for.
func recordMissed(tx *db.Tx, r record, first, until time.Time, count int, now time.Time) error {
	if count == 0 {
		return nil
	}
	f := firing{Firing: holt.Firing{
		Schedule: r.ID, Due: first, Until: &until, Count: count, State: holt.FiringMissed, EndedAt: &now,
		Reason: "the daemon did not run then, or its host slept; the policy for missed times is " + string(r.Missed),
	}, computer: r.ComputerID}
	if count == 1 {
		f.Until = nil
	}
	if err := add(tx, &f); err != nil {
		return err
	}
	return prune(tx, r.ID)
}

// fireAll writes down the firings of due times, the earliest first; several are made up for one
// after the other, whatever goes on. It says whether any of them is to run.
func fireAll(tx *db.Tx, r record, dues []time.Time, now time.Time) (fired bool, err error) {
	if len(dues) > 0 {
		if err := oweThaw(tx, r.ID, now); err != nil {
			return false, err
		}
	}
	for _, due := range dues {
		f := firing{Firing: holt.Firing{Schedule: r.ID, Due: due, State: holt.FiringQueued}, computer: r.ComputerID}
		if len(dues) == 1 {
			if err := meet(tx, r, &f, now); err != nil {
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

// meet says of a firing what becomes of it if another one of its schedule goes on.
func meet(tx *db.Tx, r record, f *firing, now time.Time) error {
	on, err := firings(tx, `WHERE schedule = ? AND `+goesOn+` ORDER BY state = 'queued', seq`, r.ID)
	if err != nil || len(on) == 0 {
		return err
	}
	first := slices.IndexFunc(on, func(f firing) bool { return f.State == holt.FiringQueued })
	f.Reason = "the one of " + stamp(on[0].Due) + " goes on"
	switch {
	case r.Overlap == holt.OverlapReplace:
		f.replaces = true
		for _, q := range on[max(first, 0):] {
			if q.State == holt.FiringQueued {
				q.State, q.Reason, q.EndedAt = holt.FiringSkipped, "the one of "+stamp(f.Due)+" took its place", &now
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
		f.Reason = "the one of " + stamp(on[first].Due) + " waits already"
	}
	f.State, f.EndedAt = holt.FiringSkipped, &now
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Run fires a schedule now, whether it is enabled or not, and returns when its run has
// started or cannot be, or waits for the one before it, or for room.
//
// Errors: NotFound, Conflict (its last run goes on, and the policy for that is skip, or one
// waits already; several have ref as name).
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
		if err := errors.Join(oweThaw(tx, r.ID, now), meet(tx, r, &f, now)); err != nil || f.State == holt.FiringSkipped {
			return err
		}
		if err := add(tx, &f); err != nil {
			return err
		}
		return claim.Bind(tx, strconv.FormatInt(f.seq, 10))
	})
	if err == nil && f.State == holt.FiringSkipped {
		err = holt.Errorf(holt.Conflict, "%s is not run now: %s", r.Name, f.Reason).WithHint("wait for its end, or holt schedule update --overlap queue or replace")
	}
	if err == nil {
		s.pursue(r.ID)
	}
	return f.seq, err
}

// begun waits until a firing has begun, or will not.
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
			return holt.Firing{}, holt.Errorf(holt.Conflict, "the schedule was deleted meanwhile")
		case all[0].State != holt.FiringStarting && all[0].State != holt.FiringQueued || all[0].Reason != "":
			return *all[0].shown(), nil
		}
		if err := pause(ctx, begunEvery); err != nil {
			return holt.Firing{}, err
		}
	}
}

// begunEvery is how often a caller looks whether a run has begun.
const begunEvery = 50 * time.Millisecond

// pause waits.
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
