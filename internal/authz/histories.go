package authz

import (
	"context"
	"io"

	"holt"
)

// histories is [httpapi.History]: what a path has been shows where else it was, so all of it is for who
// covers the whole workspace.
type histories struct{ w *warden }

// ours is asked by what a computer may do about its own workspace, too.
func (n histories) ours(ctx context.Context, ref string, u use) error {
	a, _ := holt.ActorOf(ctx)
	if a.Computer == "" {
		return n.w.workspace(ctx, ref, u)
	}
	if c, err := n.w.n.Computers.Get(ctx, string(a.Computer)); err != nil || c.Workspace != ref {
		return denied(a)
	}
	return nil
}

func (n histories) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error) {
	if err := n.ours(ctx, ref, change); err != nil {
		return holt.Checkpoint{}, err
	}
	return n.w.n.History.Checkpoint(ctx, ref, spec, key)
}

// Checkpoints is asked before a computer takes one of itself: how many there are.
func (n histories) Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error) {
	if err := n.ours(ctx, ref, look); err != nil {
		return nil, err
	}
	return n.w.n.History.Checkpoints(ctx, ref)
}

func (n histories) GetCheckpoint(ctx context.Context, ref, checkpoint string) (holt.Checkpoint, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return holt.Checkpoint{}, err
	}
	return n.w.n.History.GetCheckpoint(ctx, ref, checkpoint)
}

func (n histories) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error) {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.Freed{}, err
	}
	return n.w.n.History.DeleteCheckpoint(ctx, ref, checkpoint, dryRun, key)
}

func (n histories) DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return holt.DiffSpec{}, err
	}
	return n.w.n.History.DiffPoints(ctx, ref, spec)
}

func (n histories) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return err
	}
	return n.w.n.History.Diff(ctx, ref, spec, fn)
}

func (n histories) TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, out io.Writer) error {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return err
	}
	return n.w.n.History.TextDiff(ctx, ref, spec, out)
}

func (n histories) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error) {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.ChangeReport{}, err
	}
	return n.w.n.History.Restore(ctx, ref, spec, key)
}

func (n histories) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error) {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.ChangeReport{}, err
	}
	return n.w.n.History.Undo(ctx, ref, spec, key)
}

func (n histories) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return nil, err
	}
	return n.w.n.History.History(ctx, ref, path)
}

func (n histories) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return holt.Writer{}, err
	}
	return n.w.n.History.Blame(ctx, ref, path)
}

func (n histories) Receipt(ctx context.Context, ref, run string) (holt.Receipt, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return holt.Receipt{}, err
	}
	return n.w.n.History.Receipt(ctx, ref, run)
}
