package daemon

import (
	"context"
	"io"

	"holt"
	"holt/internal/computer"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// histories is the past of workspaces; see [holt/internal/door/httpapi.History].
type histories struct{ w *Workspaces }

// History returns the past of all workspaces.
func (w *Workspaces) History() histories { return histories{w} }

// use calls fn with a workspace's past, once what ended runs changed is in it.
func (h histories) use(ctx context.Context, ref string, fn func(context.Context, workspace.History) error) error {
	r, err := h.w.table.find(ctx, ref)
	if err != nil {
		return err
	}
	if h.w.guests != nil {
		h.w.guests.Settle(ctx, r.id)
	}
	return h.w.use(ctx, string(r.id), func(ctx context.Context, ws *workspace.Workspace) error {
		s := workspace.History{W: ws, Caller: workspace.Caller{UID: agentUID, GID: agentUID, Writer: writerOf(ctx)}}
		if h.w.guests != nil {
			s.Terminals = func(ctx context.Context, name string) ([]holt.TerminalID, error) {
				return h.w.guests.Terminals(ctx, r.id, name)
			}
			s.Running = func(ctx context.Context, run holt.RunID) (bool, error) { return h.w.guests.Running(ctx, r.id, run) }
		}
		return fn(ctx, s)
	})
}

// ask is use for what has an answer.
func ask[T any](ctx context.Context, h histories, ref string, fn func(context.Context, workspace.History) (T, error)) (out T, err error) {
	err = h.use(ctx, ref, func(ctx context.Context, s workspace.History) error {
		out, err = fn(ctx, s)
		return err
	})
	return out, err
}

// flush has whoever has a workspace mounted write what programs hold of it in
// memory, as far as they answer: what they do not write now may be lost in a
// restore.
func (h histories) flush(ctx context.Context, ref string) (flushed bool) {
	r, err := h.w.table.find(ctx, ref)
	if err != nil {
		return false
	}
	if err = h.w.mounts.flush(ctx, r.id); err == nil && h.w.guests != nil {
		err = h.w.guests.Flush(ctx, r.id)
	}
	if err != nil {
		h.w.log.WarnContext(ctx, "what programs hold in memory was not written first", "workspace", r.id, "err", err)
	}
	return err == nil
}

// rest ends the stretch of work in the terminals of a workspace; see [computer.Guests.Rest].
func (h histories) rest(ctx context.Context, ref string) (end func()) {
	if r, err := h.w.table.find(ctx, ref); err == nil && h.w.guests != nil {
		return h.w.guests.Rest(ctx, r.id)
	}
	return func() {}
}

// Checkpoint takes a checkpoint.
func (h histories) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error) {
	take := func(ctx context.Context) (holt.Checkpoint, error) {
		flushed := h.flush(ctx, ref)
		return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Checkpoint, error) {
			return s.Checkpoint(spec, flushed)
		})
	}
	return computer.Once(ctx, h.w.keys, computer.Call[holt.Checkpoint]{
		Key: key, Method: "workspace.checkpoint", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *computer.Claim) (holt.Checkpoint, error) {
			if claim != nil && spec.Name != "" { // then a repeat knows the one it finds
				if _, err := h.GetCheckpoint(ctx, ref, spec.Name); err == nil {
					return take(ctx) // which says that it exists
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
func (h histories) Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) ([]holt.Checkpoint, error) { return s.Checkpoints(), nil })
}

// GetCheckpoint returns one, or the present.
func (h histories) GetCheckpoint(ctx context.Context, ref, checkpoint string) (holt.Checkpoint, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Checkpoint, error) { return s.Find(checkpoint) })
}

// DeleteCheckpoint removes one, or says what that would free. One that is part of
// a snapshot goes with that: Conflict.
func (h histories) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error) {
	remove := callOf("checkpoint.delete", key, []any{ref, checkpoint, dryRun}, func(ctx context.Context) (holt.Freed, error) {
		r, err := h.w.table.find(ctx, ref)
		if err != nil {
			return holt.Freed{}, err
		}
		return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Freed, error) {
			if err := h.ofSnapshot(ctx, r.id, s, checkpoint); err != nil {
				return holt.Freed{}, err
			}
			return s.Delete(ctx, checkpoint, dryRun)
		})
	})
	remove.Removes = !dryRun
	return computer.Once(ctx, h.w.keys, remove)
}

// ofSnapshot returns Conflict for a checkpoint that a snapshot needs.
func (h histories) ofSnapshot(ctx context.Context, id holt.WorkspaceID, s workspace.History, checkpoint string) error {
	if h.w.guests == nil {
		return nil
	}
	c, err := s.W.FindCheckpoint(checkpoint)
	if err != nil {
		return nil // Delete says it better
	}
	m, ok, err := h.w.guests.Snapshot(ctx, id, c.Name)
	if err != nil || !ok {
		return err
	}
	return holt.Errorf(holt.Conflict, "the checkpoint %s is part of a snapshot of %s", c.Name, m.Computer).
		WithHint("holt snapshot delete %s removes both", m.ID)
}

// DiffPoints fills in what a DiffSpec leaves out.
func (h histories) DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.DiffSpec, error) { return s.Resolve(spec) })
}

// Diff calls fn for every path that differs.
func (h histories) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	return h.use(ctx, ref, func(ctx context.Context, s workspace.History) error { return s.Diff(ctx, spec, fn) })
}

// TextDiff writes how the text of files differs.
func (h histories) TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, out io.Writer) error {
	return h.use(ctx, ref, func(ctx context.Context, s workspace.History) error { return s.TextDiff(ctx, spec, out) })
}

// Restore makes a workspace, or paths of it, what it was. What is mounted has
// seen it when this returns, or will soon.
func (h histories) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error) {
	return h.turn(ctx, ref, "restore", spec.DryRun, key, spec, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
		return s.Restore(ctx, spec)
	})
}

// Undo takes one run back, or one stretch of work in a terminal.
func (h histories) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error) {
	return h.turn(ctx, ref, "undo", spec.DryRun, key, spec, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
		return s.Undo(ctx, spec)
	})
}

// turn is a restore or an undo.
func (h histories) turn(ctx context.Context, ref, verb string, dryRun bool, key string, spec any,
	act func(context.Context, workspace.History) (holt.ChangeReport, error)) (holt.ChangeReport, error) {
	return once(ctx, h.w.Files(), verb, key, []any{ref, spec}, func(ctx context.Context) (holt.ChangeReport, error) {
		flushed, end := true, func() {}
		if !dryRun {
			flushed = h.flush(ctx, ref)
			end = h.rest(ctx, ref)
		}
		report, err := ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.ChangeReport, error) {
			defer h.w.shelf.kernels.settle(ctx, s.W)
			return act(ctx, s)
		})
		if report.Before == "" { // it failed, or there was nothing to do
			end()
		}
		report.Unflushed = !flushed
		return report, err
	})
}

// History returns what became of a path.
func (h histories) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) ([]holt.PathEvent, error) { return s.Events(ctx, path) })
}

// Blame returns who last wrote what is at a path.
func (h histories) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Writer, error) { return s.Blame(ctx, path) })
}

// Receipt says what a run or stretch changed.
func (h histories) Receipt(ctx context.Context, ref, run string) (holt.Receipt, error) {
	return ask(ctx, h, ref, func(ctx context.Context, s workspace.History) (holt.Receipt, error) { return s.Receipt(ctx, run) })
}
