package workspaces

import (
	"context"

	"holt"
	"holt/internal/store/chunk"
	"holt/internal/workspace"
)

// Find returns the id and name of a workspace.
func (s *Store) Find(ctx context.Context, ref string) (holt.WorkspaceID, string, error) {
	r, err := s.table.find(ctx, ref)
	return r.id, r.name, err
}

// Get returns a workspace by name or id, with its present figures.
func (s *Store) Get(ctx context.Context, ref string) (holt.Workspace, error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	e, ws, err := s.open.acquire(r.id)
	if err != nil {
		return holt.Workspace{}, err
	}
	defer s.open.release(e)
	shown, err := s.shown(ctx, r)
	if err == nil {
		var u chunk.SpaceUsage
		u, err = s.open.base.Archive.SpaceUsage(ctx, string(r.id))
		shown.Packed = holt.Packed{Bytes: u.Bytes, Stored: u.Stored, Waiting: ws.Stat().Waiting}
	}
	return shown, err
}

// List returns all workspaces except those of jobs, ordered by name. The figures of a closed
// workspace are those of when it was closed.
func (s *Store) List(ctx context.Context) ([]holt.Workspace, error) {
	rows, err := s.table.rows(ctx, `WHERE state = 'ready' AND (?1 = '' OR tenant = ?1) AND `+notOfJob+` ORDER BY name, id`, holt.Confined(ctx))
	if err != nil {
		return nil, err
	}
	list := make([]holt.Workspace, 0, len(rows))
	for _, r := range rows {
		shown, err := s.shown(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, shown)
	}
	return list, nil
}

func (s *Store) shown(ctx context.Context, r row) (holt.Workspace, error) {
	c, _, err := s.having(ctx, r.id)
	if err != nil {
		return holt.Workspace{}, err
	}
	if stats, open := s.open.figures(r.id); open {
		r.files, r.bytes = stats.Files, stats.Bytes
	}
	return holt.Workspace{
		ID: r.id, Name: r.name, CreatedAt: r.created, Computer: c.Name, Mounts: s.mounts.of(r.id), Files: r.files, Bytes: r.bytes,
		Quota: r.quota, Parent: r.parent, Tenant: r.tenant,
	}, nil
}

// Take opens a workspace for the one computer that writes to it; see [holt/internal/computer.Workspaces].
func (s *Store) Take(ctx context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	s.mounts.changing.Lock()
	defer s.mounts.changing.Unlock()
	for _, m := range s.mounts.of(id) {
		if !m.ReadOnly {
			return nil, nil, holt.Errorf(holt.Conflict, "the workspace is mounted read-write on %s", m.Dir).
				WithHint("unmount it first: holt workspace unmount %s; a read-only mount may stay", m.Dir)
		}
	}
	e, ws, err := s.open.acquire(id)
	if err != nil {
		return nil, nil, err
	}
	if !s.open.take(e) {
		s.open.release(e)
		return nil, nil, holt.Errorf(holt.Conflict, "another computer uses the workspace")
	}
	return ws, func() {
		s.open.untake(e)
		s.open.release(e)
	}, nil
}

// View opens a workspace for reading.
func (s *Store) View(_ context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	e, ws, err := s.open.acquire(id)
	if err != nil {
		return nil, nil, err
	}
	return ws, func() { s.open.release(e) }, nil
}

// TenantName names a workspace: the name is unique within the tenant.
type TenantName struct{ Tenant, Name string }

// Sizes returns the bytes of content of all workspaces.
func (s *Store) Sizes(ctx context.Context) (map[TenantName]int64, error) {
	rows, err := s.table.rows(ctx, `WHERE state = 'ready'`)
	if err != nil {
		return nil, err
	}
	sizes := make(map[TenantName]int64, len(rows))
	for _, r := range rows {
		if now, open := s.open.figures(r.id); open {
			r.bytes = now.Bytes
		}
		sizes[TenantName{r.tenant, r.name}] = r.bytes
	}
	return sizes, nil
}

// Waiting returns how many bytes open workspaces have to pack.
func (s *Store) Waiting() int64 { return s.open.waiting() }
