package workspaces

import (
	"context"
	"io"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// History is the checkpoints of workspaces and the changes between them; see
// [holt/internal/nouns.History].
type History struct{ w *Store }

// History returns the history of all workspaces.
func (s *Store) History() History { return History{s} }

// use calls fn with the history of a workspace, once the changes of ended runs are in it.
func (h History) use(ctx context.Context, ref string, fn func(context.Context, workspace.History) error) error {
	r, err := h.w.table.find(ctx, ref)
	if err != nil {
		return err
	}
	if h.w.guests != nil {
		h.w.guests.Settle(ctx, r.id)
	}
	return h.w.use(ctx, string(r.id), func(ctx context.Context, ws *workspace.Workspace) error {
		past := workspace.History{W: ws, Caller: workspace.Caller{UID: agentUID, GID: agentUID, Writer: WriterOf(ctx)}}
		if h.w.guests != nil {
			past.Terminals = func(ctx context.Context, name string) ([]holt.TerminalID, error) {
				return h.w.guests.Terminals(ctx, r.id, name)
			}
			past.Running = func(ctx context.Context, run holt.RunID) (bool, error) { return h.w.guests.Running(ctx, r.id, run) }
		}
		return fn(ctx, past)
	})
}

// ask is use for a function that returns a value.
func ask[T any](ctx context.Context, h History, ref string, fn func(context.Context, workspace.History) (T, error)) (out T, err error) {
	err = h.use(ctx, ref, func(ctx context.Context, s workspace.History) error {
		out, err = fn(ctx, s)
		return err
	})
	return out, err
}

// flush has the kernels that have a workspace mounted write the changes that
// programs have made through memory maps. What is not written may be lost in a
// restore.
func (h History) flush(ctx context.Context, ref string) (flushed bool) {
	r, err := h.w.table.find(ctx, ref)
	if err != nil {
		return false
	}
	if err = h.w.mounts.flush(ctx, r.id); err == nil && h.w.guests != nil {
		err = h.w.guests.Flush(ctx, r.id)
	}
	if err != nil {
		h.w.log.WarnContext(ctx, "memory maps were not written to the workspace first", "workspace", r.id, "err", err)
	}
	return err == nil
}

// rest ends the terminal session of a workspace; see [holt/internal/computer.Guests.Rest].
func (h History) rest(ctx context.Context, ref string) (end func()) {
	if r, err := h.w.table.find(ctx, ref); err == nil && h.w.guests != nil {
		return h.w.guests.Rest(ctx, r.id)
	}
	return func() {}
}

// Checkpoint takes a checkpoint.
func (h History) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error) {
	take := func(ctx context.Context) (holt.Checkpoint, error) {
		flushed := h.flush(ctx, ref)
		return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Checkpoint, error) {
			return s.Checkpoint(spec, flushed)
		})
	}
	return idempotency.Once(ctx, h.w.keys, idempotency.Call[holt.Checkpoint]{
		Key: key, Method: "workspace.checkpoint", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Checkpoint, error) {
			if claim != nil && spec.Name != "" { // a repeat finds the checkpoint by its name
				if _, err := h.GetCheckpoint(ctx, ref, spec.Name); err == nil {
					return take(ctx) // returns AlreadyExists
				}
				if err := h.w.table.change(ctx, func(tx *db.Tx) error { return claim.Bind(tx, spec.Name) }); err != nil {
					return holt.Checkpoint{}, err
				}
			}
			return take(ctx)
		},
		Again: func(ctx context.Context, name string) (holt.Checkpoint, error) {
			if c, err := h.GetCheckpoint(ctx, ref, name); err == nil {
				return c, nil
			}
			return take(ctx)
		},
	})
}

// Checkpoints returns all checkpoints, oldest first.
func (h History) Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) ([]holt.Checkpoint, error) { return s.Checkpoints(), nil })
}

// GetCheckpoint returns one checkpoint, or the present state.
func (h History) GetCheckpoint(ctx context.Context, ref, checkpoint string) (holt.Checkpoint, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Checkpoint, error) { return s.Find(checkpoint) })
}

// DeleteCheckpoint removes a checkpoint, or with dryRun says how much that would
// free. Conflict if it is part of a snapshot.
func (h History) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error) {
	remove := callOf("checkpoint.delete", key, []any{ref, checkpoint, dryRun}, func(ctx context.Context) (holt.Freed, error) {
		r, err := h.w.table.find(ctx, ref)
		if err != nil {
			return holt.Freed{}, err
		}
		return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Freed, error) {
			if err := h.needed(ctx, r.id, s, checkpoint); err != nil {
				return holt.Freed{}, err
			}
			return s.Delete(ctx, checkpoint, dryRun)
		})
	})
	remove.Removes = !dryRun
	return idempotency.Once(ctx, h.w.keys, remove)
}

// needed returns Conflict for a checkpoint that a snapshot or an artifact needs.
func (h History) needed(ctx context.Context, id holt.WorkspaceID, s workspace.History, checkpoint string) error {
	c, err := s.W.FindCheckpoint(checkpoint)
	if err != nil {
		return nil // Delete returns the error
	}
	if h.w.artifacts != nil {
		if held, err := h.w.artifacts.Holds(ctx, c.Name); err != nil {
			return err
		} else if held {
			return holt.Errorf(holt.Conflict, "the artifact %s is still being stored from this checkpoint", c.Name).WithHint("Holt deletes the checkpoint when that is done")
		}
	}
	if h.w.guests == nil {
		return nil
	}
	m, ok, err := h.w.guests.Snapshot(ctx, id, c.Name)
	if err != nil || !ok {
		return err
	}
	return holt.Errorf(holt.Conflict, "the checkpoint %s is part of a snapshot of %s", c.Name, m.Computer).
		WithHint("holt snapshot delete %s deletes both", m.ID)
}

// DiffPoints fills in the defaults of a DiffSpec.
func (h History) DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.DiffSpec, error) { return s.Resolve(spec) })
}

// Diff calls fn for every path that differs.
func (h History) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	return h.use(ctx, ref, func(ctx context.Context, s workspace.History) error { return s.Diff(ctx, spec, fn) })
}

// TextDiff writes the differences of text files.
func (h History) TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, out io.Writer) error {
	return h.use(ctx, ref, func(ctx context.Context, s workspace.History) error { return s.TextDiff(ctx, spec, out) })
}

// Restore makes a workspace, or paths of it, as they were at a checkpoint. Mounts
// show the change when this returns, or within settleTimeout.
func (h History) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error) {
	return h.revert(ctx, ref, "restore", spec.DryRun, key, spec, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
		return s.Restore(ctx, spec)
	})
}

// Undo takes back the changes of one run or one terminal session.
func (h History) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error) {
	return h.revert(ctx, ref, "undo", spec.DryRun, key, spec, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
		return s.Undo(ctx, spec)
	})
}

// revert is a restore or an undo.
func (h History) revert(ctx context.Context, ref, verb string, dryRun bool, key string, spec any,
	act func(context.Context, workspace.History) (holt.ChangeReport, error)) (holt.ChangeReport, error) {
	return once(ctx, h.w.Files(), verb, key, []any{ref, spec}, func(ctx context.Context) (holt.ChangeReport, error) {
		flushed, end := true, func() {}
		if !dryRun {
			flushed = h.flush(ctx, ref)
			end = h.rest(ctx, ref)
		}
		report, err := ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
			defer h.w.open.kernels.settle(ctx, s.W)
			return act(ctx, s)
		})
		if report.Before == "" { // it failed, or nothing had to change
			end()
		}
		report.Unflushed = !flushed
		return report, err
	})
}

// History returns the changes of a path.
func (h History) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) ([]holt.PathEvent, error) { return s.Events(ctx, path) })
}

// Blame returns the last writer of a path.
func (h History) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Writer, error) { return s.Blame(ctx, path) })
}

// Receipt returns what a run or terminal session changed.
func (h History) Receipt(ctx context.Context, ref, run string) (holt.Receipt, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Receipt, error) { return s.Receipt(ctx, run) })
}
