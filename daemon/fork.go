package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/computer"
	"holt/db"
	"holt/workspace"
)

// Fork makes workspaces of one, or of a checkpoint of it. One that fails does
// not keep the others from being made.
//
// Errors: NotFound, AlreadyExists, InvalidArgument, OutOfSpace.
func (w *Workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	return computer.Once(ctx, w.keys, computer.Call[holt.Forked]{
		Key: key, Method: "workspace.fork", Request: []any{ref, spec},
		Act: func(ctx context.Context, _ *computer.Claim) (holt.Forked, error) { return w.fork(ctx, ref, spec) },
	})
}

func (w *Workspaces) fork(ctx context.Context, ref string, spec holt.ForkSpec) (out holt.Forked, err error) {
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return out, err
	}
	names, err := w.forkNames(ctx, r, spec)
	if err != nil {
		return out, err
	}
	if spec.At == "" || spec.At == holt.Live {
		w.History().flush(ctx, ref)
	}
	e, ws, err := w.shelf.acquire(r.id)
	if err != nil {
		return out, err
	}
	defer w.shelf.release(e)
	ctx, done := e.during(ctx)
	defer done()
	for _, name := range names {
		one := holt.ForkedWorkspace{Name: name}
		id := holt.NewWorkspaceID()
		at, err := w.forkOne(ctx, r, ws, id, workspace.ForkOptions{At: spec.At, Child: name}, holt.Quota{})
		err = e.reason(err)
		if err == nil {
			spec.At = at // the others are of the same
			var made holt.Workspace
			if made, err = w.Get(ctx, string(id)); err == nil {
				one.Workspace = &made
			}
		}
		if err != nil && len(names) == 1 {
			return out, err
		}
		if err != nil {
			one.Error = holt.AsError(err)
		}
		out.Workspaces = append(out.Workspaces, one)
	}
	return out, nil
}

// forkNames chooses names that are free.
func (w *Workspaces) forkNames(ctx context.Context, parent row, spec holt.ForkSpec) ([]string, error) {
	count := cmp.Or(spec.Count, 1)
	if err := holt.CheckForks(count); err != nil {
		return nil, err
	}
	if spec.Name != "" && count == 1 {
		return []string{spec.Name}, nil
	}
	rows, err := w.table.rows(ctx, `WHERE tenant = ?`, parent.tenant)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range rows {
		taken[r.name] = true
	}
	return computer.ForkNames(cmp.Or(spec.Name, parent.name), count, func(name string) bool { return taken[name] })
}

// forkOne makes one, and returns how its checkpoint is called for the next. One without a
// name stays half-made until it gets one; see [guestSpaces.Swap].
func (w *Workspaces) forkOne(ctx context.Context, parent row, ws *workspace.Workspace, id holt.WorkspaceID, opt workspace.ForkOptions, quota holt.Quota) (string, error) {
	name, state := opt.Child, "ready"
	if name == "" {
		name, state = string(id), "creating" // no name holds an underscore
	}
	err := w.table.change(ctx, func(tx *db.Tx) error {
		if err := vacant(tx, parent.tenant, name, "choose another name"); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO workspace (id, name, state, created, parent, max_bytes, max_files, tenant) VALUES (?, ?, 'creating', ?, ?, ?, ?, ?)`,
			id, name, time.Now().UnixNano(), parent.id, quota.Bytes, quota.Files, parent.tenant)
	})
	if err != nil {
		return "", err
	}
	opt.Name, opt.Space = parent.name, string(id)
	point, err := ws.Fork(ctx, w.shelf.path(id), opt)
	if err == nil {
		err = w.table.write(ctx, `UPDATE workspace SET state = ?, fork_point = ?, files = (SELECT files FROM workspace WHERE id = ?),`+
			` bytes = ? WHERE id = ?`, state, point.Name, parent.id, point.Bytes, id)
	}
	if err != nil {
		return "", errors.Join(described(err), w.remove(context.WithoutCancel(ctx), id))
	}
	return fmt.Sprint("#", uint64(point.ID)), nil
}

// Merge brings changes of another workspace to this one. What is mounted has
// seen them when this returns, or will soon.
func (w *Workspaces) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error) {
	h := w.History()
	return once(ctx, w.Files(), "merge", key, []any{ref, spec}, func(ctx context.Context) (out holt.MergeReport, err error) {
		into, err := w.table.find(ctx, ref)
		if err != nil {
			return out, err
		}
		other, err := w.table.find(ctx, spec.From)
		if err != nil {
			return out, err
		}
		flushed := spec.DryRun || h.flush(ctx, ref)
		h.flush(ctx, spec.From)
		err = h.use(ctx, string(other.id), func(ctx context.Context, from workspace.Story) error {
			return h.use(ctx, string(into.id), func(ctx context.Context, s workspace.Story) error {
				defer w.shelf.kernels.settle(ctx, s.W)
				out, err = s.Merge(ctx, from.W, other.name, into.name, spec)
				return err
			})
		})
		out.Unflushed = !flushed
		return out, err
	})
}
