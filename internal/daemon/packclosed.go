package daemon

import (
	"context"
	"time"

	"holt"
)

// packClosedEvery is how often workspaces that are closed and were left with
// segments to pack are looked for. When there are none that is one query.
const packClosedEvery = 5 * time.Minute

// packClosed packs what a killed daemon, a fork that nobody opened or a store
// that was away left in workspaces that nobody opens, until ctx ends.
func (w *Workspaces) packClosed(ctx context.Context) {
	tick := time.NewTicker(packClosedEvery)
	defer tick.Stop()
	for {
		w.packRound(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// packRound visits them one after the other. One that fails is left for the
// next round.
func (w *Workspaces) packRound(ctx context.Context) {
	rows, err := w.table.rows(ctx, `WHERE state = 'ready' AND unpacked ORDER BY id`)
	if err != nil && ctx.Err() == nil {
		w.log.ErrorContext(ctx, "closed workspaces are not packed", "err", err)
	}
	for _, r := range rows {
		if _, open := w.shelf.figures(r.id); open || ctx.Err() != nil {
			continue // it packs by itself
		}
		err := w.packOne(ctx, r.id)
		if err != nil && ctx.Err() == nil && holt.CodeOf(err) != holt.NotFound {
			w.log.ErrorContext(ctx, "closed workspace is not packed; trying again later", "workspace", r.id, "again_in", packClosedEvery, "err", err)
		}
	}
}

// packOne opens a workspace for as long as it takes, unless others use it then.
func (w *Workspaces) packOne(ctx context.Context, id holt.WorkspaceID) error {
	e, ws, err := w.shelf.acquire(id)
	if err != nil {
		return err
	}
	ctx, done := e.during(ctx)
	_, err = ws.PackWaiting(ctx)
	done()
	w.shelf.release(e)
	if lost := w.shelf.shutIdle(e, true); err == nil {
		err = lost
	}
	return e.reason(err)
}
