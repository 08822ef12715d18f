package servertest

import (
	"context"
	"io"

	"holt"
	"holt/internal/workspace"
)

// history is the past of the real workspaces behind Memory.
type history struct{ m *Memory }

// past calls fn with one, once for each key.
func past[T any](n history, ref, key string, args []any, fn func(workspace.History) (T, error)) (T, error) {
	return once(n.m, key, append(args, ref), func() (out T, err error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return out, err
		}
		return fn(workspace.History{W: t})
	})
}

func (n history) story(ref string) (workspace.History, error) {
	t, err := n.m.tree(ref)
	return workspace.History{W: t}, err
}

func (n history) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error) {
	if err := n.m.before(ctx, key); err != nil {
		return holt.Checkpoint{}, err
	}
	return past(n, ref, key, []any{"checkpoint", spec}, func(s workspace.History) (holt.Checkpoint, error) { return s.Checkpoint(spec, true) })
}

func (n history) Checkpoints(_ context.Context, ref string) ([]holt.Checkpoint, error) {
	s, err := n.story(ref)
	if err != nil {
		return nil, err
	}
	return s.Checkpoints(), nil
}

func (n history) GetCheckpoint(_ context.Context, ref, checkpoint string) (holt.Checkpoint, error) {
	s, err := n.story(ref)
	if err != nil {
		return holt.Checkpoint{}, err
	}
	return s.Find(checkpoint)
}

func (n history) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error) {
	return past(n, ref, key, []any{"delete checkpoint", checkpoint, dryRun}, func(s workspace.History) (holt.Freed, error) {
		return s.Delete(ctx, checkpoint, dryRun)
	})
}

func (n history) DiffPoints(_ context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error) {
	s, err := n.story(ref)
	if err != nil {
		return spec, err
	}
	return s.Resolve(spec)
}

func (n history) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	s, err := n.story(ref)
	if err != nil {
		return err
	}
	return s.Diff(ctx, spec, fn)
}

func (n history) TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, w io.Writer) error {
	s, err := n.story(ref)
	if err != nil {
		return err
	}
	return s.TextDiff(ctx, spec, w)
}

func (n history) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error) {
	return past(n, ref, key, []any{"restore", spec}, func(s workspace.History) (holt.ChangeReport, error) { return s.Restore(ctx, spec) })
}

func (n history) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error) {
	return past(n, ref, key, []any{"undo", spec}, func(s workspace.History) (holt.ChangeReport, error) { return s.Undo(ctx, spec) })
}

func (n history) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	s, err := n.story(ref)
	if err != nil {
		return nil, err
	}
	return s.Events(ctx, path)
}

func (n history) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	s, err := n.story(ref)
	if err != nil {
		return holt.Writer{}, err
	}
	return s.Blame(ctx, path)
}

func (n history) Receipt(ctx context.Context, ref, run string) (holt.Receipt, error) {
	s, err := n.story(ref)
	if err != nil {
		return holt.Receipt{}, err
	}
	return s.Receipt(ctx, run)
}
