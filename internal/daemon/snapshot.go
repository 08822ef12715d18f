package daemon

import (
	"context"
	"fmt"
	"strings"

	"holt"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// guestSpaces are the workspaces as computers need them.
type guestSpaces struct{ *Workspaces }

// Make makes an empty workspace for a computer; see [computer.Workspaces].
func (f guestSpaces) Make(ctx context.Context, id holt.WorkspaceID, name string, quota holt.Quota) error {
	if _, err := f.table.find(ctx, string(id)); err == nil {
		return nil
	}
	return f.make(ctx, id, holt.WorkspaceSpec{Name: name, Quota: quota}, nil)
}

// Fork makes the workspace of a computer that is forked; see [computer.Workspaces].
func (f guestSpaces) Fork(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, checkpoint string, mounts bool) error {
	return f.forkAt(ctx, id, from, workspace.ForkOptions{At: checkpoint, Child: name, Mounts: mounts}, func(parent row, _ *workspace.Workspace) holt.Quota { return parent.quota })
}

// Branch makes the workspace of a computer that goes back to a snapshot; see
// [computer.Workspaces]. Until the swap it has no name, and a daemon that opens removes it.
func (f guestSpaces) Branch(ctx context.Context, id, from holt.WorkspaceID, checkpoint string, mounts bool) error {
	return f.forkAt(ctx, id, from, workspace.ForkOptions{At: checkpoint, Mounts: mounts}, nil)
}

// forkAt makes a fork; quota says what bounds it, nil: nothing.
func (f guestSpaces) forkAt(ctx context.Context, id, from holt.WorkspaceID, opt workspace.ForkOptions, quota func(row, *workspace.Workspace) holt.Quota) error {
	parent, err := f.table.find(ctx, string(from))
	if err != nil {
		return err
	}
	e, ws, err := f.shelf.acquire(from)
	if err != nil {
		return err
	}
	defer f.shelf.release(e)
	var q holt.Quota
	if quota != nil {
		q = quota(parent, ws)
	}
	_, err = f.forkOne(ctx, parent, ws, id, opt, q, nil)
	return err
}

// Swap lets one workspace take the place of another; see [computer.Workspaces].
func (f guestSpaces) Swap(tx *db.Tx, out, in holt.WorkspaceID, left string, keep bool) error {
	var was, tenant string
	err := tx.Query(`SELECT name, tenant FROM workspace WHERE id = ?`, []any{out}, func(r *db.Row) error { was, tenant = r.Text(0), r.Text(1); return nil })
	name, state := string(out), "deleting"
	if keep && err == nil {
		state = "ready"
		name, err = freeName(tx, tenant, left)
	}
	if err == nil {
		err = tx.Exec(`UPDATE workspace SET name = ?2, state = ?3 WHERE id = ?1`, out, name, state)
	}
	if err == nil {
		err = tx.Exec(`UPDATE workspace SET name = ?2, state = 'ready', (max_bytes, max_files) = (SELECT max_bytes, max_files FROM workspace WHERE id = ?3) WHERE id = ?1`,
			in, was, out)
	}
	return err
}

// mostName is what a name has at most, bytes, less what a number takes.
const mostName = 63 - len("-99999")

// freeName returns a name that no workspace of the tenant has: the one that is wanted or, where it is taken
// or too long, the beginning of it and a number.
func freeName(tx *db.Tx, tenant, want string) (string, error) {
	stem := strings.Trim(want[:min(len(want), mostName)], "-")
	name := stem
	for n := 2; ; n++ {
		err := vacant(tx, tenant, name, "")
		if holt.CodeOf(err) != holt.AlreadyExists {
			return name, err
		}
		name = fmt.Sprintf("%s-%d", stem, n)
	}
}

// Announce tells a guest that goes on what has changed since; see
// [computer.Workspaces]. That this must be told is on no record, so this is done
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

// Forget removes the checkpoint of a snapshot that is deleted; see [computer.Workspaces].
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
