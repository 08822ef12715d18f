package schedule

import (
	"context"
	"errors"
	"time"

	"holt"
	"holt/internal/store/db"
)

const (
	roomWait  = time.Hour        // for which a firing is tried again whose computer finds no room
	roomEvery = 15 * time.Second // between two tries
)

// lacksRoom says whether a computer may be woken later that could not be now.
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

// waits says whether a firing whose computer finds no room is tried again.
func (s *Store) waits(f *firing) bool {
	return f.refused.IsZero() || s.cfg.Now().Sub(f.refused) < roomWait
}

// tryLater leaves a firing as it is for a while, with the reason, unless another takes its place.
func (s *Store) tryLater(ctx context.Context, f *firing, why error) error {
	next, replaced, err := s.replacement(ctx, f.Schedule)
	if err != nil {
		return err
	}
	if replaced {
		return s.finish(ctx, f, holt.FiringSkipped, "the one of "+stamp(next.Due)+" took its place; it had waited: "+reasonOf(why))
	}
	if f.refused.IsZero() {
		f.refused = s.cfg.Now().UTC()
		s.log.WarnContext(ctx, "a schedule waits for room", "schedule", f.Schedule, "computer", f.computer, "err", why)
	}
	f.Reason = "is tried again until " + stamp(f.refused.Add(roomWait)) + ": " + reasonOf(why)
	if err := s.write(ctx, func(tx *db.Tx) error { return save(tx, *f) }); err != nil {
		return err
	}
	return pause(ctx, roomEvery)
}
