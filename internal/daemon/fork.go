package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Fork makes workspaces of one, or of a checkpoint of it. One that fails does
// not keep the others from being made.
//
// Errors: NotFound, AlreadyExists, InvalidArgument, OutOfSpace.
func (w *Workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	return computer.Once(ctx, w.keys, computer.Call[holt.Forked]{
		Key: key, Method: "workspace.fork", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *computer.Claim) (holt.Forked, error) {
			return w.fork(ctx, ref, spec, claim)
		},
	})
}

func (w *Workspaces) fork(ctx context.Context, ref string, spec holt.ForkSpec, claim *computer.Claim) (out holt.Forked, err error) {
	count := cmp.Or(spec.Count, 1)
	if err := holt.CheckForks(count); err != nil {
		return out, err
	}
	if out.Workspaces, err = w.forked(ctx, claim); err != nil {
		return out, err
	}
	var ids []string
	for _, one := range out.Workspaces { // the others are of the same
		ids, spec.At = append(ids, string(one.Workspace.ID)), one.Workspace.Parent.Checkpoint
	}
	if len(ids) == count {
		return out, nil
	}
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return out, err
	}
	names, err := w.forkNames(ctx, r, spec, count-len(ids))
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
		ids = append(ids, string(id)) // also of one that fails: it is looked for and not found
		bind := func(tx *db.Tx) error { return claim.Bind(tx, strings.Join(ids, " ")) }
		at, err := w.forkOne(ctx, r, ws, id, workspace.ForkOptions{At: spec.At, Child: name}, holt.Quota{}, bind)
		err = e.reason(err)
		if err == nil {
			spec.At = at // the others are of the same
			var made holt.Workspace
			if made, err = w.Get(ctx, string(id)); err == nil {
				one.Workspace = &made
			}
		}
		if err != nil && count == 1 {
			return out, err
		}
		if err != nil {
			one.Error = holt.AsError(err)
		}
		out.Workspaces = append(out.Workspaces, one)
	}
	return out, nil
}

// forked returns what a call had made that a daemon's end cut off. A half-made one was removed when this daemon started.
func (w *Workspaces) forked(ctx context.Context, claim *computer.Claim) (made []holt.ForkedWorkspace, err error) {
	bound, err := claim.Bound(ctx, w.table.db)
	if err != nil {
		return nil, err
	}
	for id := range strings.FieldsSeq(bound) {
		switch one, err := w.Get(ctx, id); {
		case err == nil:
			made = append(made, holt.ForkedWorkspace{Name: one.Name, Workspace: &one})
		case holt.CodeOf(err) != holt.NotFound:
			return nil, err
		}
	}
	return made, nil
}

// forkNames chooses names that are free.
func (w *Workspaces) forkNames(ctx context.Context, parent row, spec holt.ForkSpec, count int) ([]string, error) {
	if spec.Name != "" && cmp.Or(spec.Count, 1) == 1 {
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
// name stays half-made until it gets one; see [guestSpaces.Swap]. bind, if any, is called in the transaction that begins it.
func (w *Workspaces) forkOne(ctx context.Context, parent row, ws *workspace.Workspace, id holt.WorkspaceID, opt workspace.ForkOptions, quota holt.Quota, bind func(*db.Tx) error) (string, error) {
	name, state := opt.Child, "ready"
	if name == "" {
		name, state = string(id), "creating" // no name holds an underscore
	}
	err := w.table.change(ctx, func(tx *db.Tx) error {
		if err := vacant(tx, parent.tenant, name, "choose another name"); err != nil {
			return err
		}
		if bind != nil {
			if err := bind(tx); err != nil {
				return err
			}
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
		err = h.use(ctx, string(other.id), func(ctx context.Context, from workspace.History) error {
			return h.use(ctx, string(into.id), func(ctx context.Context, s workspace.History) error {
				defer w.shelf.kernels.settle(ctx, s.W)
				out, err = s.Merge(ctx, from.W, other.name, into.name, spec)
				return err
			})
		})
		out.Unflushed = !flushed
		return out, err
	})
}
