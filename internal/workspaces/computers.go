package workspaces

import (
	"context"
	"fmt"
	"strings"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// ForComputers are the workspaces as computers use them; see [holt/internal/computer.Workspaces].
type ForComputers struct{ *Store }

// Make makes an empty workspace.
func (f ForComputers) Make(ctx context.Context, id holt.WorkspaceID, name string, quota holt.Quota) error {
	if _, err := f.table.find(ctx, string(id)); err == nil {
		return nil
	}
	return f.make(ctx, id, holt.WorkspaceSpec{Name: name, Quota: quota}, nil)
}

// Fork makes the workspace of a forked computer.
func (f ForComputers) Fork(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, checkpoint string, mounts bool) error {
	return f.forkAt(ctx, id, from, workspace.ForkOptions{At: checkpoint, Child: name, Mounts: mounts}, func(parent row, _ *workspace.Workspace) holt.Quota { return parent.quota })
}

// Branch makes the workspace of a computer that is restored. It has no name until Swap; [Open] removes one
// without a name.
func (f ForComputers) Branch(ctx context.Context, id, from holt.WorkspaceID, checkpoint string, mounts bool) error {
	return f.forkAt(ctx, id, from, workspace.ForkOptions{At: checkpoint, Mounts: mounts}, nil)
}

// forkAt makes a fork. quota returns its quota; nil: no bound.
func (f ForComputers) forkAt(ctx context.Context, id, from holt.WorkspaceID, opt workspace.ForkOptions, quota func(row, *workspace.Workspace) holt.Quota) error {
	parent, err := f.table.find(ctx, string(from))
	if err != nil {
		return err
	}
	e, ws, err := f.open.acquire(from)
	if err != nil {
		return err
	}
	defer f.open.release(e)
	var q holt.Quota
	if quota != nil {
		q = quota(parent, ws)
	}
	_, err = f.forkOne(ctx, parent, ws, id, opt, q, nil)
	return err
}

// Swap gives the name and quota of workspace out to workspace in.
func (f ForComputers) Swap(tx *db.Tx, out, in holt.WorkspaceID, left string, keep bool) error {
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

// freeName returns a name that no workspace of the tenant has: the wanted one, or its beginning and a number
// if it is taken or too long.
func freeName(tx *db.Tx, tenant, want string) (string, error) {
	stem := strings.Trim(want[:min(len(want), maxName)], "-")
	name := stem
	for n := 2; ; n++ {
		err := vacant(tx, tenant, name, "")
		if holt.CodeOf(err) != holt.AlreadyExists {
			return name, err
		}
		name = fmt.Sprintf("%s-%d", stem, n)
	}
}

// Announce notifies a resumed guest of all changes since a checkpoint. It is called each time the guest is
// resumed: no record says whether the guest needs it.
func (f ForComputers) Announce(ctx context.Context, id holt.WorkspaceID, checkpoint string) error {
	e, ws, err := f.open.acquire(id)
	if err != nil {
		return err
	}
	defer f.open.release(e)
	stale, err := ws.StaleSince(ctx, checkpoint)
	if err != nil {
		return hosterror.Describe(err)
	}
	tell := f.open.kernels.changed(ws)
	for _, one := range stale {
		tell(one.Ino, one.Name)
	}
	return nil
}

// Forget removes the checkpoint of a deleted snapshot, unless a fork needs it.
func (f ForComputers) Forget(ctx context.Context, id holt.WorkspaceID, checkpoint string) error {
	forked := false
	err := f.table.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT 1 FROM workspace WHERE parent = ? AND fork_point = ?`, []any{id, checkpoint}, func(*db.Row) error { forked = true; return nil })
	})
	if err != nil || forked {
		return err
	}
	e, ws, err := f.open.acquire(id)
	if err == nil {
		defer f.open.release(e)
		_, err = ws.DeleteCheckpoint(ctx, checkpoint, false)
	}
	if holt.CodeOf(err) == holt.NotFound {
		return nil
	}
	return hosterror.Describe(err)
}
