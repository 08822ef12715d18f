package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"holt"
	"holt/internal/api"
)

// History is the past of workspaces.
type History struct{ c *Client }

func oneCheckpoint(ref, checkpoint string) api.OneCheckpoint {
	return api.OneCheckpoint{api.OneWorkspace{ref}, checkpoint}
}

// Checkpoint takes a checkpoint.
func (n History) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (holt.Checkpoint, error) {
	return do(ctx, n.c, api.CreateCheckpoint, workspaceBody(ref, key, spec))
}

// Checkpoints returns the checkpoints of a workspace, oldest first.
func (n History) Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error) {
	return doList(ctx, n.c, api.ListCheckpoints, api.CheckpointsOf{OneWorkspace: api.OneWorkspace{ref}})
}

// GetCheckpoint returns a checkpoint, or the present, live.
func (n History) GetCheckpoint(ctx context.Context, ref, checkpoint string) (holt.Checkpoint, error) {
	return do(ctx, n.c, api.GetCheckpoint, oneCheckpoint(ref, checkpoint))
}

// DeleteCheckpoint removes a checkpoint, or with dryRun only says what that
// would free.
func (n History) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (holt.Freed, error) {
	return do(ctx, n.c, api.DeleteCheckpoint, api.CheckpointRemoval{oneCheckpoint(ref, checkpoint), api.Keyed{key}, dryRun})
}

func points(ref string, spec holt.DiffSpec) api.TwoPoints {
	return api.TwoPoints{api.OneWorkspace{ref}, spec.From, spec.To, spec.Paths}
}

// DiffPoints says which two states a comparison would be of.
func (n History) DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (holt.DiffSpec, error) {
	return do(ctx, n.c, api.DiffPoints, points(ref, spec))
}

// Diff calls fn for every path that differs, deletions first, until fn fails.
func (n History) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	k := callOf(api.DiffWorkspace, points(ref, spec))
	resp, err := sent(ctx, n.c, func() (*http.Response, error) { return n.c.open(ctx, k) })
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), mostChange)
	for lines.Scan() {
		var c holt.Change
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return holt.Errorf(holt.Unavailable, "the daemon sent an invalid change: %w", err)
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return n.c.broken(ctx, err)
	}
	return nil
}

// mostChange bounds one line of a diff, bytes: paths may be long in deep trees,
// and come in base64 too.
const mostChange = 16 << 20

// TextDiff writes unified diffs of the files that differ.
func (n History) TextDiff(ctx context.Context, ref string, spec holt.DiffSpec, w io.Writer) error {
	return n.c.copyTo(ctx, callOf(api.DiffText, points(ref, spec)), w)
}

// Restore makes a workspace, or paths of it, what it was at a checkpoint.
func (n History) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (holt.ChangeReport, error) {
	return do(ctx, n.c, api.RestoreWorkspace, api.WorkspaceRestore{workspaceBody(ref, key, spec)})
}

// Undo takes one run back and keeps what came later.
func (n History) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (holt.ChangeReport, error) {
	return do(ctx, n.c, api.UndoRun, api.WorkspaceUndo{workspaceBody(ref, key, spec)})
}

// History returns the changes of a path, newest first.
func (n History) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	page, err := do(ctx, n.c, api.FileHistory, api.PastFile{api.OneWorkspace{ref}, path})
	return page.Items, err
}

// Blame returns the last writer of a file.
func (n History) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	return do(ctx, n.c, api.BlameFile, api.PastFile{api.OneWorkspace{ref}, path})
}

// Receipt says what a run changed in a workspace.
func (n History) Receipt(ctx context.Context, ref, run string) (holt.Receipt, error) {
	return do(ctx, n.c, api.WorkspaceReceipt, api.ReceiptOf{api.OneWorkspace{ref}, run})
}
