package workspaces

import (
	"context"
	"time"

	"holt"
)

// PackClosed packs closed workspaces that have segments to pack, until ctx ends. A killed daemon, a fork that
// was never opened, or an archive that was not available leaves some.
func (s *Store) PackClosed(ctx context.Context) {
	tick := time.NewTicker(packInterval)
	defer tick.Stop()
	for {
		s.packRound(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// packRound packs them one after the other. One that fails is tried again in the next round.
func (s *Store) packRound(ctx context.Context) {
	rows, err := s.table.rows(ctx, `WHERE state = 'ready' AND unpacked ORDER BY id`)
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "closed workspaces are not packed", "err", err)
	}
	for _, r := range rows {
		if _, open := s.open.figures(r.id); open || ctx.Err() != nil {
			continue // an open workspace packs by itself
		}
		err := s.packOne(ctx, r.id)
		if err != nil && ctx.Err() == nil && holt.CodeOf(err) != holt.NotFound {
			s.log.ErrorContext(ctx, "closed workspace is not packed; it is tried again later", "workspace", r.id, "again_in", packInterval, "err", err)
		}
	}
}

// packOne opens a workspace, packs it, and closes it unless it is used.
func (s *Store) packOne(ctx context.Context, id holt.WorkspaceID) error {
	e, ws, err := s.open.acquire(id)
	if err != nil {
		return err
	}
	ctx, done := e.during(ctx)
	_, err = ws.PackWaiting(ctx)
	done()
	s.open.release(e)
	if lost := s.open.shutIdle(e, true); err == nil {
		err = lost
	}
	return e.reason(err)
}
