package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/computer"
	"holt/internal/guest/mount"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Workspaces is the registry of workspaces: which there are, which are open,
// and which are mounted on the host.
type Workspaces struct {
	keys   *idempotency.Keys
	log    *slog.Logger
	table  workspaceTable
	shelf  *shelf
	mounts *hostMounts
	asking db.Turns

	// Set by setComputers.
	guests   *computer.Guests
	inGuests *computer.Files // of running computers
}

// openWorkspaces opens the registry and removes half-made workspaces. All that
// are in dir share one reserve, in it: dir may be a mount of its own.
func openWorkspaces(ctx context.Context, d *db.DB, keys *idempotency.Keys, dir string, base workspace.Options) (*Workspaces, error) {
	log := base.Log
	if base.Reserve == nil {
		base.Reserve = workspace.NewReserve(filepath.Join(dir, ".reserve"))
	}
	table := workspaceTable{d}
	shelf := &shelf{dir: dir, log: log, base: base, table: table, idle: idleFor, entries: map[holt.WorkspaceID]*entry{}, going: map[holt.WorkspaceID]bool{}, hostMounts: map[holt.WorkspaceID][16]byte{},
		kernels: kernels{log: log, set: map[*workspace.Workspace]*mount.Notifier{}}}
	w := &Workspaces{
		keys: keys, log: log, table: table, shelf: shelf,
		mounts: &hostMounts{data: filepath.Dir(dir), log: log, table: table, shelf: shelf, mounts: map[string]*hostMount{}, kept: map[string]*mount.Kept{}},
		asking: db.Turns{Most: mostQueries, OfTenant: mostOfTenant, OfOne: mostOfOne},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make workspace directory: %w", err)
	}
	half, err := w.table.rows(ctx, `WHERE state <> 'ready'`)
	if err != nil {
		return nil, err
	}
	for _, r := range half {
		w.log.InfoContext(ctx, "remove half-made workspace", "workspace", r.id, "name", r.name)
		if err := w.remove(ctx, r.id); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// setComputers says who may have workspaces. Until then nobody has.
func (w *Workspaces) setComputers(s *computer.Store) {
	w.guests, w.inGuests = s.Guests(), s.Files()
	w.mounts.having, w.mounts.keeping = w.guests.Having, w.guests.Keeping
}

// close closes all workspaces; nobody uses them any more.
func (w *Workspaces) close() error {
	w.mounts.wg.Wait()
	return w.shelf.close()
}

// Mount mounts a workspace on a directory of the host, also after restarts of
// the daemon, until Unmount. It is read-write only if nothing else has it so.
//
// Errors: NotFound, InvalidArgument (the directory), AlreadyExists (something
// is mounted there), Conflict (the workspace is in use), Unsupported.
func (w *Workspaces) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	return idempotency.Once(ctx, w.keys, idempotency.Call[holt.Mount]{
		Key: key, Method: "workspace.mount", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Mount, error) {
			return w.mounts.mount(ctx, ref, spec, claim)
		},
		Again: func(_ context.Context, dir string) (holt.Mount, error) { // remade when the daemon started
			return holt.Mount{Dir: dir, ReadOnly: spec.ReadOnly}, nil
		},
	})
}

// Unmount ends the host mount at dir, busy or not.
func (w *Workspaces) Unmount(ctx context.Context, dir, key string) error {
	_, err := idempotency.Once(ctx, w.keys, idempotency.Call[struct{}]{
		Key: key, Method: "workspace.unmount", Request: dir, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			return struct{}{}, w.mounts.unmount(ctx, dir)
		},
	})
	return err
}

// use calls fn with an open workspace. Its context ends, and so should fn, when
// the workspace is deleted.
func (w *Workspaces) use(ctx context.Context, ref string, fn func(context.Context, *workspace.Workspace) error) error {
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return err
	}
	e, ws, err := w.shelf.acquire(r.id)
	if err != nil {
		return err
	}
	defer w.shelf.release(e)
	ctx, done := e.during(ctx)
	defer done()
	return described(e.reason(fn(ctx, ws)))
}

// Check recomputes everything a workspace says about itself.
func (w *Workspaces) Check(ctx context.Context, ref string) (report holt.CheckReport, err error) {
	err = w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		report, err = ws.Check(ctx)
		return err
	})
	return report, err
}
