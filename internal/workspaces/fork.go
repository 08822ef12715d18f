package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Fork makes one or several forks of a workspace, or of a checkpoint of it. If one
// fails the others are still made.
//
// Errors: NotFound, AlreadyExists, InvalidArgument, OutOfSpace.
func (s *Store) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Forked]{
		Key: key, Method: "workspace.fork", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Forked, error) {
			return s.fork(ctx, ref, spec, claim)
		},
	})
}

func (s *Store) fork(ctx context.Context, ref string, spec holt.ForkSpec, claim *idempotency.Claim) (out holt.Forked, err error) {
	count := cmp.Or(spec.Count, 1)
	if err := holt.CheckForks(count); err != nil {
		return out, err
	}
	if out.Workspaces, err = s.forked(ctx, claim); err != nil {
		return out, err
	}
	var ids []string
	for _, one := range out.Workspaces { // the rest are forks of the same checkpoint
		ids, spec.At = append(ids, string(one.Workspace.ID)), one.Workspace.Parent.Checkpoint
	}
	if len(ids) == count {
		return out, nil
	}
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return out, err
	}
	names, err := s.forkNames(ctx, r, spec, count-len(ids))
	if err != nil {
		return out, err
	}
	if spec.At == "" || spec.At == holt.Live {
		s.History().flush(ctx, ref)
	}
	e, ws, err := s.open.acquire(r.id)
	if err != nil {
		return out, err
	}
	defer s.open.release(e)
	ctx, done := e.during(ctx)
	defer done()
	for _, name := range names {
		one := holt.ForkedWorkspace{Name: name}
		id := holt.NewWorkspaceID()
		ids = append(ids, string(id)) // also the id of one that fails: a repeat does not find it
		bind := func(tx *db.Tx) error { return claim.Bind(tx, strings.Join(ids, " ")) }
		at, err := s.forkOne(ctx, r, ws, id, workspace.ForkOptions{At: spec.At, Child: name}, holt.Quota{}, bind)
		err = e.reason(err)
		if err == nil {
			spec.At = at // the rest are forks of the same checkpoint
			var made holt.Workspace
			if made, err = s.Get(ctx, string(id)); err == nil {
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

// forked returns the forks that a call had made before the daemon ended. Half-made ones were removed when the
// daemon started.
func (s *Store) forked(ctx context.Context, claim *idempotency.Claim) (made []holt.ForkedWorkspace, err error) {
	bound, err := claim.Bound(ctx, s.table.db)
	if err != nil {
		return nil, err
	}
	for id := range strings.FieldsSeq(bound) {
		switch one, err := s.Get(ctx, id); {
		case err == nil:
			made = append(made, holt.ForkedWorkspace{Name: one.Name, Workspace: &one})
		case holt.CodeOf(err) != holt.NotFound:
			return nil, err
		}
	}
	return made, nil
}

// forkNames chooses free names.
func (s *Store) forkNames(ctx context.Context, parent row, spec holt.ForkSpec, count int) ([]string, error) {
	if spec.Name != "" && cmp.Or(spec.Count, 1) == 1 {
		return []string{spec.Name}, nil
	}
	rows, err := s.table.rows(ctx, `WHERE tenant = ?`, parent.tenant)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range rows {
		taken[r.name] = true
	}
	return computer.ForkNames(cmp.Or(spec.Name, parent.name), count, func(name string) bool { return taken[name] })
}

// forkOne makes one fork and returns the reference of its checkpoint. A fork without a name stays half-made
// until [ForComputers.Swap]. bind, if not nil, is called in the transaction that inserts the row.
func (s *Store) forkOne(ctx context.Context, parent row, ws *workspace.Workspace, id holt.WorkspaceID, opt workspace.ForkOptions, quota holt.Quota, bind func(*db.Tx) error) (string, error) {
	name, state := opt.Child, "ready"
	if name == "" {
		name, state = string(id), "creating" // no name contains an underscore
	}
	err := s.table.change(ctx, func(tx *db.Tx) error {
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
	point, err := ws.Fork(ctx, s.open.path(id), opt)
	if err == nil {
		err = s.table.write(ctx, `UPDATE workspace SET state = ?, fork_point = ?, files = (SELECT files FROM workspace WHERE id = ?),`+
			` bytes = ? WHERE id = ?`, state, point.Name, parent.id, point.Bytes, id)
	}
	if err != nil {
		return "", errors.Join(hosterror.Describe(err), s.remove(context.WithoutCancel(ctx), id))
	}
	return fmt.Sprint("#", uint64(point.ID)), nil
}

// Merge applies the changes of another workspace to this one. Mounts show them
// when this returns, or within settleTimeout.
func (s *Store) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error) {
	h := s.History()
	return once(ctx, s.Files(), "merge", key, []any{ref, spec}, func(ctx context.Context) (out holt.MergeReport, err error) {
		into, err := s.table.find(ctx, ref)
		if err != nil {
			return out, err
		}
		other, err := s.table.find(ctx, spec.From)
		if err != nil {
			return out, err
		}
		flushed := spec.DryRun || h.flush(ctx, ref)
		h.flush(ctx, spec.From)
		err = h.use(ctx, string(other.id), func(ctx context.Context, from workspace.History) error {
			return h.use(ctx, string(into.id), func(ctx context.Context, to workspace.History) error {
				defer s.open.kernels.settle(ctx, to.W)
				out, err = to.Merge(ctx, from.W, other.name, into.name, spec)
				return err
			})
		})
		out.Unflushed = !flushed
		return out, err
	})
}
