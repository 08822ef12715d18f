package schedule

import (
	"context"
	"errors"
	"time"

	"holt"
	"holt/internal/store/db"
)

const (
	roomWait  = time.Hour        // how long a firing whose computer finds no room is retried
	roomEvery = 15 * time.Second // between tries
)

// lacksRoom reports whether a computer that cannot be woken now may be woken later.
func lacksRoom(err error) bool {
	switch holt.CodeOf(err) {
	case holt.TooMany:
		if full, ok := holt.LacksMemory(err); ok {
			return full.AskedMB <= full.MostMB
		}
		var e *holt.Error
		if errors.As(err, &e) {
			if full, ok := e.Detail.(holt.LimitReached); ok {
				return full.Asked <= full.Max
			}
		}
		return true
	case holt.Unavailable, holt.Timeout:
		return true
	}
	return false
}

// waits reports whether a firing whose computer finds no room is retried.
func (s *Store) waits(f *firing) bool {
	return f.refused.IsZero() || s.cfg.Now().Sub(f.refused) < roomWait
}

// retryLater records why a firing waits, and sleeps for roomEvery. It ends a firing that another replaces.
func (s *Store) retryLater(ctx context.Context, f *firing, why error) error {
	next, replaced, err := s.replacement(ctx, f.Schedule)
	if err != nil {
		return err
	}
	if replaced {
		return s.finish(ctx, f, holt.FiringSkipped, "replaced by the run of "+stamp(next.Due)+" while it waited: "+reasonOf(why))
	}
	if f.refused.IsZero() {
		f.refused = s.cfg.Now().UTC()
		s.log.WarnContext(ctx, "a schedule waits for room", "schedule", f.Schedule, "computer", f.computer, "err", why)
	}
	f.Reason = "retried until " + stamp(f.refused.Add(roomWait)) + ": " + reasonOf(why)
	if err := s.write(ctx, func(tx *db.Tx) error { return save(tx, *f) }); err != nil {
		return err
	}
	return pause(ctx, roomEvery)
}
