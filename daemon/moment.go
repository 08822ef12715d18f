package daemon

import (
	"context"

	"holt"
	"holt/db"
	"holt/workspace"
)

// guestSpaces are the workspaces as computers need them.
type guestSpaces struct{ *Workspaces }

// Fork makes the workspace of a computer that is forked; see [computer.Workspaces].
func (f guestSpaces) Fork(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, checkpoint string) error {
	parent, err := f.table.find(ctx, string(from))
	if err != nil {
		return err
	}
	e, ws, err := f.shelf.acquire(from)
	if err != nil {
		return err
	}
	defer f.shelf.release(e)
	_, err = f.forkOne(ctx, parent, ws, id, workspace.ForkOptions{At: checkpoint, Child: name, Mounts: true})
	return err
}

// Announce tells a guest that goes on what has changed since; see
// [computer.Workspaces]. What is not told waits in memory only, so this is done
// each time the guest goes on.
func (f guestSpaces) Announce(ctx context.Context, id holt.WorkspaceID, checkpoint string) error {
	e, ws, err := f.shelf.acquire(id)
	if err != nil {
		return err
	}
	defer f.shelf.release(e)
	stale, err := ws.StaleSince(ctx, checkpoint)
	if err != nil {
		return described(err)
	}
	tell := f.shelf.kernels.changed(ws)
	for _, one := range stale {
		tell(one.Ino, one.Name)
	}
	return nil
}

// Forget removes the checkpoint of a moment that is deleted; see [computer.Workspaces].
func (f guestSpaces) Forget(ctx context.Context, id holt.WorkspaceID, checkpoint string) error {
	forked := false
	err := f.table.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT 1 FROM workspace WHERE parent = ? AND fork_point = ?`, []any{id, checkpoint}, func(*db.Row) error { forked = true; return nil })
	})
	if err != nil || forked {
		return err
	}
	e, ws, err := f.shelf.acquire(id)
	if err == nil {
		defer f.shelf.release(e)
		_, err = ws.DeleteCheckpoint(ctx, checkpoint, false)
	}
	if holt.CodeOf(err) == holt.NotFound {
		return nil
	}
	return described(err)
}
