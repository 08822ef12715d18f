package computer

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"holt"
	"holt/internal/idempotency"
)

const (
	defaultHold = 30 * time.Minute
	mostHold    = 7 * 24 * time.Hour
	mostHolds   = 32  // of one computer
	mostReason  = 200 // bytes
)

// Hold keeps a computer from being paused for being idle until it expires or is released. It does
// not wake a paused computer.
//
// Errors: NotFound, InvalidArgument, TooMany.
func (s *Store) Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error) {
	spec.Reason = strings.TrimSpace(spec.Reason)
	if spec.Reason == "" || len(spec.Reason) > mostReason || !utf8.ValidString(spec.Reason) {
		return holt.Hold{}, holt.Errorf(holt.InvalidArgument, "invalid reason: it must have 1 to %d bytes", mostReason).WithHint("give what the computer waits for, for example thinking")
	}
	span := time.Duration(spec.ForMS) * time.Millisecond
	if spec.ForMS == 0 {
		span = defaultHold
	}
	if spec.ForMS < 0 || spec.ForMS > mostHold.Milliseconds() {
		return holt.Hold{}, holt.Errorf(holt.InvalidArgument, "invalid duration of a hold: %s", holt.ShortMS(spec.ForMS)).WithHint("the maximum is 7 days (168h); --idle-timeout null keeps a computer awake without limit")
	}
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Hold]{Key: key, Method: "computer.hold", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Hold, error) {
			r, err := s.table.find(ctx, ref)
			if err != nil {
				return holt.Hold{}, err
			}
			now := s.uses.now().UTC()
			h := holt.Hold{ID: holt.NewHoldID(), ComputerID: r.ID, Reason: spec.Reason, By: s.by(ctx), CreatedAt: now, ExpiresAt: now.Add(span)}
			defer s.uses.begin(r.ID, holt.Use{Kind: holt.UseHold, ID: string(h.ID), Detail: h.Reason})()
			return h, s.idler.rows.addHold(ctx, h, mostHolds, claim)
		},
		Again: func(ctx context.Context, id string) (holt.Hold, error) { return s.hadHold(ctx, ref, holt.HoldID(id)) },
	})
}

// hadHold answers a repeat whose first call was interrupted after it had made the hold.
func (s *Store) hadHold(ctx context.Context, ref string, id holt.HoldID) (holt.Hold, error) {
	holds, err := s.Holds(ctx, ref)
	for _, h := range holds {
		if h.ID == id {
			return h, nil
		}
	}
	if err == nil {
		err = noHold(id)
	}
	return holt.Hold{}, err
}

// Holds returns the holds of a computer, oldest first.
func (s *Store) Holds(ctx context.Context, ref string) ([]holt.Hold, error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.idler.rows.holds(ctx, r.ID, s.uses.now())
}

// Release ends a hold. NotFound if it has expired or was released.
func (s *Store) Release(ctx context.Context, ref string, id holt.HoldID, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{Key: key, Method: "computer.release", Request: []any{ref, id}, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			r, err := s.table.find(ctx, ref)
			if err != nil {
				return struct{}{}, err
			}
			was, err := s.idler.rows.dropHold(ctx, r.ID, id)
			if err == nil && !was {
				err = noHold(id)
			}
			if err == nil {
				s.uses.used(r.ID, holt.Use{Kind: holt.UseHold, ID: string(id)})
			}
			return struct{}{}, err
		}})
	return err
}

func noHold(id holt.HoldID) error {
	return holt.Errorf(holt.NotFound, "there is no hold %s", id).WithHint("it has expired or was released; holt computer holds lists the holds")
}
