package workspaces

import (
	"context"

	"holt"
	"holt/internal/idempotency"
)

// Mount mounts a workspace on a directory of the host until Unmount; it is
// mounted again when the daemon restarts. It is read-write only if nothing else
// writes to the workspace.
//
// Errors: NotFound, InvalidArgument (the directory), AlreadyExists (a workspace
// is mounted there), Conflict (the workspace is in use), Unsupported.
func (s *Store) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Mount]{
		Key: key, Method: "workspace.mount", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Mount, error) {
			return s.mounts.mount(ctx, ref, spec, claim)
		},
		Again: func(_ context.Context, dir string) (holt.Mount, error) { // it was mounted when the daemon started
			return holt.Mount{Dir: dir, ReadOnly: spec.ReadOnly}, nil
		},
	})
}

// Unmount ends the host mount on dir, even if it is busy.
func (s *Store) Unmount(ctx context.Context, dir, key string) error {
	_, err := idempotency.Once(ctx, s.keys, idempotency.Call[struct{}]{
		Key: key, Method: "workspace.unmount", Request: dir, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			return struct{}{}, s.mounts.unmount(ctx, dir)
		},
	})
	return err
}

// Mounts returns the host mounts of all tenants.
func (s *Store) Mounts(ctx context.Context) ([]holt.HostMount, error) {
	rows, err := s.table.rows(ctx, `WHERE id IN (SELECT workspace FROM host_mount)`)
	if err != nil {
		return nil, err
	}
	list := []holt.HostMount{}
	for _, r := range rows {
		for _, m := range s.mounts.of(r.id) {
			list = append(list, holt.HostMount{Mount: m, WorkspaceID: r.id, Workspace: r.name, Tenant: r.tenant})
		}
	}
	return list, nil
}

// Remount serves the host mounts of the daemon before this one.
func (s *Store) Remount(ctx context.Context) error { return s.mounts.remount(ctx) }

// LeaveMounts leaves the host mounts to their keepers and the next daemon.
func (s *Store) LeaveMounts() error { return s.mounts.leave() }

// UnmountAll ends all host mounts, also for the next daemon, and returns their directories.
func (s *Store) UnmountAll(ctx context.Context) ([]string, error) { return s.mounts.unmountAll(ctx) }
