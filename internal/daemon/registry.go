package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// agentUID is the user "agent" in every computer, who owns a workspace's root.
const agentUID = 1000

// Create makes an empty workspace.
//
// Errors: InvalidArgument, AlreadyExists, OutOfSpace.
func (w *Workspaces) Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error) {
	if _, err := holt.ParseName(spec.Name); err != nil {
		return holt.Workspace{}, err
	}
	return idempotency.Once(ctx, w.keys, idempotency.Call[holt.Workspace]{
		Key: key, Method: "workspace.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Workspace, error) {
			id := holt.NewWorkspaceID()
			if err := w.make(ctx, id, spec, claim); err != nil {
				return holt.Workspace{}, err
			}
			return w.Get(ctx, string(id))
		},
		Again: func(ctx context.Context, ref string) (holt.Workspace, error) {
			// A half-made one was removed when the daemon started.
			if _, err := w.table.find(ctx, ref); err == nil {
				return w.Get(ctx, ref)
			}
			id := holt.WorkspaceID(ref)
			if err := w.make(ctx, id, spec, nil); err != nil {
				return holt.Workspace{}, err
			}
			return w.Get(ctx, ref)
		},
	})
}

func (w *Workspaces) make(ctx context.Context, id holt.WorkspaceID, spec holt.WorkspaceSpec, claim *idempotency.Claim) error {
	if spec.Quota.Bytes < 0 || spec.Quota.Files < 0 {
		return badQuota()
	}
	name := spec.Name
	err := w.table.change(ctx, func(tx *db.Tx) error {
		tenant := holt.TenantOf(ctx)
		if err := vacant(tx, tenant, name, fmt.Sprintf("choose another name, or give --workspace %s to work in that one", name)); err != nil {
			return err
		}
		if err := claim.Bind(tx, string(id)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO workspace (id, name, state, created, max_bytes, max_files, tenant) VALUES (?, ?, 'creating', ?, ?, ?, ?)`,
			id, name, time.Now().UnixNano(), spec.Quota.Bytes, spec.Quota.Files, tenant)
	})
	if err != nil {
		return err
	}
	err = w.fill(id, spec.Quota)
	if err == nil {
		err = w.table.write(ctx, `UPDATE workspace SET state = 'ready' WHERE id = ?`, id)
	}
	if err != nil {
		return errors.Join(described(err), w.remove(context.WithoutCancel(ctx), id))
	}
	return nil
}

// fill makes the files of a new workspace. They belong to the user agent.
func (w *Workspaces) fill(id holt.WorkspaceID, quota holt.Quota) error {
	ws, err := workspace.Create(w.shelf.path(id), w.shelf.options(id, holt.Quota{}))
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	if err := ws.Seed(workspace.Caller{UID: agentUID, GID: agentUID}, image.Skeleton()); err != nil {
		return errors.Join(fmt.Errorf("give workspace to its user: %w", err), ws.Close())
	}
	ws.SetQuota(quota)
	w.shelf.put(id, ws) // it stays open for who comes next
	return nil
}

// remove deletes a workspace's files, its share of the archive and its row, however much there is of it.
func (w *Workspaces) remove(ctx context.Context, id holt.WorkspaceID) error {
	err := w.table.change(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE workspace SET parent_was = coalesce((SELECT name FROM workspace p WHERE p.id = ?1), '') WHERE parent = ?1`, id); err != nil {
			return err
		}
		return tx.Exec(`UPDATE workspace SET state = 'deleting' WHERE id = ?`, id)
	})
	if err != nil && !outOfSpace(err) {
		return err
	}
	gone := w.shelf.drop(id)
	if err := os.RemoveAll(w.shelf.path(id)); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	if err := w.shelf.base.Archive.Drop(ctx, string(id)); err != nil && !outOfSpace(err) {
		return fmt.Errorf("remove workspace from the archive: %w", err)
	}
	if err := w.table.write(ctx, `DELETE FROM workspace WHERE id = ?`, id); err != nil {
		return err
	}
	gone() // who found it before finds no row now
	return nil
}

// Remove deletes a computer's workspace; see [computer.Workspaces].
func (w *Workspaces) Remove(ctx context.Context, id holt.WorkspaceID) error {
	w.mounts.changing.Lock()
	defer w.mounts.changing.Unlock()
	if err := w.Unmounted(ctx, id); err != nil {
		return err
	}
	return w.remove(ctx, id)
}

// Unmounted returns Conflict while the host has a workspace mounted.
func (w *Workspaces) Unmounted(_ context.Context, id holt.WorkspaceID) error {
	var dirs []string
	for _, m := range w.mounts.of(id) {
		dirs = append(dirs, m.Dir)
	}
	if len(dirs) == 0 {
		return nil
	}
	return holt.Errorf(holt.Conflict, "the workspace is mounted on %s", strings.Join(dirs, ", ")).
		WithHint("end that first: holt workspace unmount %s", dirs[0])
}

// Update renames a workspace. Its mounts and the computer that has it stay.
//
// Errors: NotFound, InvalidArgument, AlreadyExists.
func (w *Workspaces) Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error) {
	name, err := holt.ParseName(to.Name)
	if err != nil {
		return holt.Workspace{}, err
	}
	return idempotency.Once(ctx, w.keys, idempotency.Call[holt.Workspace]{
		Key: key, Method: "workspace.update", Request: []any{ref, to},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Workspace, error) {
			r, err := w.table.find(ctx, ref)
			if err != nil {
				return holt.Workspace{}, err
			}
			if w.guests != nil {
				done, err := w.guests.Hold(ctx, r.id)
				if err != nil {
					return holt.Workspace{}, err
				}
				defer done()
			}
			if err := w.rename(ctx, r.id, name, claim); err != nil {
				return holt.Workspace{}, err
			}
			return w.Get(ctx, string(r.id))
		},
		Again: w.Get,
	})
}

// rename is a change of a workspace's name wherever it is kept. Whoever changes its computer must not go on meanwhile.
func (w *Workspaces) rename(ctx context.Context, id holt.WorkspaceID, name string, claim *idempotency.Claim) error {
	r, err := w.table.find(ctx, string(id))
	if err != nil {
		return err
	}
	return w.table.change(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(id)); err != nil || name == r.name {
			return err
		}
		if err := vacant(tx, r.tenant, name, "choose another name"); err != nil {
			return err
		}
		if err := tx.Exec(`UPDATE computer SET workspace_name = ? WHERE workspace = ?`, name, id); err != nil {
			return err
		}
		return tx.Exec(`UPDATE workspace SET name = ? WHERE id = ?`, name, id)
	})
}

// Delete removes a workspace with everything in it.
//
// Errors: NotFound, Conflict while a computer has it or the host has it mounted.
func (w *Workspaces) Delete(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, w.keys, idempotency.Call[struct{}]{
		Key: key, Method: "workspace.delete", Request: ref,
		Act: func(ctx context.Context, claim *idempotency.Claim) (struct{}, error) {
			return struct{}{}, w.delete(ctx, ref, claim)
		},
		// What was being deleted was removed when the daemon started.
		Again: func(context.Context, string) (struct{}, error) { return struct{}{}, nil },
	})
	return err
}

func (w *Workspaces) delete(ctx context.Context, ref string, claim *idempotency.Claim) error {
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return err
	}
	w.mounts.changing.Lock()
	defer w.mounts.changing.Unlock()
	c, has, err := w.mounts.having(ctx, r.id)
	if err != nil {
		return err
	}
	if has {
		return holt.Errorf(holt.Conflict, "the workspace %s belongs to the computer %s", r.name, c.Name).
			WithHint("holt computer delete %s removes both", c.Name)
	}
	if c, has, err = w.mounts.keeping(ctx, r.id); err != nil {
		return err
	}
	if has {
		return holt.Errorf(holt.Conflict, "snapshots of the computer %s are in the workspace %s", c.Name, r.name).
			WithHint("it goes with the last of them: holt snapshot list %s, holt snapshot delete", c.Name)
	}
	if err := w.Unmounted(ctx, r.id); err != nil {
		return err
	}
	err = w.table.change(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(r.id)); err != nil {
			return err
		}
		return tx.Exec(`UPDATE workspace SET state = 'deleting' WHERE id = ?`, r.id)
	})
	if err != nil {
		return err
	}
	return w.remove(context.WithoutCancel(ctx), r.id) // begun, it is finished
}

// Find returns the id and name of a workspace.
func (w *Workspaces) Find(ctx context.Context, ref string) (holt.WorkspaceID, string, error) {
	r, err := w.table.find(ctx, ref)
	return r.id, r.name, err
}

// Get returns a workspace by name or id, with its figures as of now.
func (w *Workspaces) Get(ctx context.Context, ref string) (holt.Workspace, error) {
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	e, ws, err := w.shelf.acquire(r.id)
	if err != nil {
		return holt.Workspace{}, err
	}
	defer w.shelf.release(e)
	shown, err := w.shown(ctx, r)
	if err == nil {
		var u chunk.SpaceUsage
		u, err = w.shelf.base.Archive.SpaceUsage(ctx, string(r.id))
		shown.Packed = holt.Packed{Bytes: u.Bytes, Stored: u.Stored, Waiting: ws.Stat().Waiting}
	}
	return shown, err
}

// List returns all workspaces but those of jobs, in the order of their names. The figures of one
// that is not open are those of when it was.
func (w *Workspaces) List(ctx context.Context) ([]holt.Workspace, error) {
	rows, err := w.table.rows(ctx, `WHERE state = 'ready' AND (?1 = '' OR tenant = ?1) AND `+ofNoJob+` ORDER BY name, id`, holt.Confined(ctx))
	if err != nil {
		return nil, err
	}
	list := make([]holt.Workspace, 0, len(rows))
	for _, r := range rows {
		shown, err := w.shown(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, shown)
	}
	return list, nil
}

func (w *Workspaces) shown(ctx context.Context, r row) (holt.Workspace, error) {
	c, _, err := w.mounts.having(ctx, r.id)
	if err != nil {
		return holt.Workspace{}, err
	}
	if stats, open := w.shelf.figures(r.id); open {
		r.files, r.bytes = stats.Files, stats.Bytes
	}
	return holt.Workspace{
		ID: r.id, Name: r.name, CreatedAt: r.created, Computer: c.Name, Mounts: w.mounts.of(r.id), Files: r.files, Bytes: r.bytes,
		Quota: r.quota, Parent: r.parent, Tenant: r.tenant,
	}, nil
}

// Take opens a workspace for the one computer that writes to it.
func (w *Workspaces) Take(ctx context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	w.mounts.changing.Lock()
	defer w.mounts.changing.Unlock()
	for _, m := range w.mounts.of(id) {
		if !m.ReadOnly {
			return nil, nil, holt.Errorf(holt.Conflict, "the computer's workspace is mounted read-write on %s", m.Dir).
				WithHint("end that first: holt workspace unmount %s; a read-only mount may stay", m.Dir)
		}
	}
	e, ws, err := w.shelf.acquire(id)
	if err != nil {
		return nil, nil, err
	}
	if !w.shelf.take(e) {
		w.shelf.release(e)
		return nil, nil, holt.Errorf(holt.Conflict, "another computer has the workspace")
	}
	return ws, func() {
		w.shelf.untake(e)
		w.shelf.release(e)
	}, nil
}

// View opens a workspace for reading.
func (w *Workspaces) View(_ context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	e, ws, err := w.shelf.acquire(id)
	if err != nil {
		return nil, nil, err
	}
	return ws, func() { w.shelf.release(e) }, nil
}
