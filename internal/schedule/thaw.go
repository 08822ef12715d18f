package schedule

import (
	"context"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/store/db"
)

// requestThaw records that another run of a schedule is due. If the present run's computer is paused it must be woken, or
// the run would never end.
func requestThaw(tx *db.Tx, id holt.ScheduleID, now time.Time) error {
	return tx.Exec(`UPDATE firing SET refused = ? WHERE schedule = ? AND state = 'running'`, nanos(now), id)
}

// thaw wakes the computer of a firing's run if requestThaw was called. It retries for roomWait, and again when the
// schedule is due next. frozen: the computer is still paused.
func (s *Store) thaw(ctx context.Context, f *firing, tried *time.Time) (frozen bool, err error) {
	f.refused = time.Time{}
	err = s.read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT refused FROM firing WHERE seq = ?`, []any{f.seq}, func(row *db.Row) error { f.refused = timeOf(row.Int64(0)); return nil })
	})
	if err != nil || f.refused.IsZero() {
		return false, err
	}
	c, err := s.cfg.Computers.Get(ctx, string(f.computer))
	switch {
	case err != nil && holt.CodeOf(err) != holt.NotFound:
		return false, err
	case restsAs(c.State) != holt.ComputerPaused:
		return false, s.thawed(ctx, f)
	case !s.waits(f) || time.Since(*tried) < roomEvery:
		return true, nil
	}
	var r record
	err = s.read(ctx, func(tx *db.Tx) (err error) { r, _, err = byID(tx, f.Schedule); return err })
	if err == nil && !r.KeepAwake && f.was != holt.ComputerPaused {
		f.was = holt.ComputerPaused
		err = s.write(ctx, func(tx *db.Tx) error { return save(tx, *f) })
	}
	if err != nil {
		return true, err
	}
	err = s.wake(holt.WithActor(ctx, holt.Actor{Schedule: f.Schedule, Name: r.Name}), *f, func(ctx context.Context) error { return s.cfg.Computers.Wake(ctx, f.computer) })
	switch *tried = time.Now(); {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case computer.Ending(err):
		return true, nil // the next daemon continues
	case err == nil:
		return false, s.thawed(ctx, f)
	}
	reason := "the computer is paused and cannot be woken; retried until " + stamp(f.refused.Add(roomWait)) + ", and when the schedule is due next: " + reasonOf(err)
	if f.Reason == reason {
		return true, nil
	}
	s.log.WarnContext(ctx, "wake the paused computer of a schedule's run: will retry", "schedule", f.Schedule, "run", f.Run, "computer", f.computer, "err", err)
	f.Reason = reason
	return true, s.write(ctx, func(tx *db.Tx) error { return tx.Exec(`UPDATE firing SET reason = ? WHERE seq = ?`, reason, f.seq) })
}

// thawed records that the computer is awake, unless requestThaw has been called since.
func (s *Store) thawed(ctx context.Context, f *firing) error {
	f.Reason = ""
	return s.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE firing SET refused = 0, reason = '' WHERE seq = ? AND refused = ?`, f.seq, nanos(f.refused))
	})
}
