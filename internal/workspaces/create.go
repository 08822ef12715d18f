package workspaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// agentUID is the user "agent" of every computer. It owns the root directory of a workspace.
const agentUID = 1000

// Create makes an empty workspace.
//
// Errors: InvalidArgument, AlreadyExists, OutOfSpace.
func (s *Store) Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error) {
	if _, err := holt.ParseName(spec.Name); err != nil {
		return holt.Workspace{}, err
	}
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Workspace]{
		Key: key, Method: "workspace.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Workspace, error) {
			id := holt.NewWorkspaceID()
			if err := s.make(ctx, id, spec, claim); err != nil {
				return holt.Workspace{}, err
			}
			return s.Get(ctx, string(id))
		},
		Again: func(ctx context.Context, ref string) (holt.Workspace, error) {
			// A half-made workspace was removed when the daemon started.
			if _, err := s.table.find(ctx, ref); err == nil {
				return s.Get(ctx, ref)
			}
			id := holt.WorkspaceID(ref)
			if err := s.make(ctx, id, spec, nil); err != nil {
				return holt.Workspace{}, err
			}
			return s.Get(ctx, ref)
		},
	})
}

func (s *Store) make(ctx context.Context, id holt.WorkspaceID, spec holt.WorkspaceSpec, claim *idempotency.Claim) error {
	if spec.Quota.Bytes < 0 || spec.Quota.Files < 0 {
		return badQuota()
	}
	name := spec.Name
	err := s.table.change(ctx, func(tx *db.Tx) error {
		tenant := holt.TenantOf(ctx)
		if err := vacant(tx, tenant, name, fmt.Sprintf("choose another name, or use --workspace %s to work in the existing one", name)); err != nil {
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
	err = s.fill(id, spec.Quota)
	if err == nil {
		err = s.table.write(ctx, `UPDATE workspace SET state = 'ready' WHERE id = ?`, id)
	}
	if err != nil {
		return errors.Join(hosterror.Describe(err), s.remove(context.WithoutCancel(ctx), id))
	}
	return nil
}

// fill makes the first files of a new workspace. They belong to the user agent.
func (s *Store) fill(id holt.WorkspaceID, quota holt.Quota) error {
	ws, err := workspace.Create(s.open.path(id), s.open.options(id, holt.Quota{}))
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	if err := ws.Seed(workspace.Caller{UID: agentUID, GID: agentUID}, image.Skeleton()); err != nil {
		return errors.Join(fmt.Errorf("make the first files of workspace: %w", err), ws.Close())
	}
	ws.SetQuota(quota)
	s.open.put(id, ws) // it stays open for its first use
	return nil
}

// Update renames a workspace. Its mounts and its computer stay as they are.
//
// Errors: NotFound, InvalidArgument, AlreadyExists.
func (s *Store) Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error) {
	name, err := holt.ParseName(to.Name)
	if err != nil {
		return holt.Workspace{}, err
	}
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Workspace]{
		Key: key, Method: "workspace.update", Request: []any{ref, to},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Workspace, error) {
			r, err := s.table.find(ctx, ref)
			if err != nil {
				return holt.Workspace{}, err
			}
			if s.guests != nil {
				done, err := s.guests.Hold(ctx, r.id)
				if err != nil {
					return holt.Workspace{}, err
				}
				defer done()
			}
			if err := s.rename(ctx, r.id, name, claim); err != nil {
				return holt.Workspace{}, err
			}
			return s.Get(ctx, string(r.id))
		},
		Again: s.Get,
	})
}

// rename changes the name of a workspace in all tables. The caller holds the computer that has it.
func (s *Store) rename(ctx context.Context, id holt.WorkspaceID, name string, claim *idempotency.Claim) error {
	r, err := s.table.find(ctx, string(id))
	if err != nil {
		return err
	}
	return s.table.change(ctx, func(tx *db.Tx) error {
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
