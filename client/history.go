package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"holt"
)

// History is the past of workspaces.
type History struct{ c *Client }

// Checkpoint takes a checkpoint.
func (n History) Checkpoint(ctx context.Context, ref string, spec holt.CheckpointSpec, key string) (out holt.Checkpoint, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "checkpoints"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Checkpoints returns the checkpoints of a workspace, oldest first.
func (n History) Checkpoints(ctx context.Context, ref string) ([]holt.Checkpoint, error) {
	return list[holt.Checkpoint](ctx, n.c, join("workspaces", ref, "checkpoints"), nil)
}

// GetCheckpoint returns a checkpoint, or the present, live.
func (n History) GetCheckpoint(ctx context.Context, ref, checkpoint string) (out holt.Checkpoint, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "checkpoints", checkpoint)}, &out)
	return out, err
}

// DeleteCheckpoint removes a checkpoint, or with dryRun only says what that
// would free.
func (n History) DeleteCheckpoint(ctx context.Context, ref, checkpoint string, dryRun bool, key string) (out holt.Freed, err error) {
	k := call{method: http.MethodDelete, path: join("workspaces", ref, "checkpoints", checkpoint), keyed: true, key: key}
	if dryRun {
		k.query = url.Values{"dry_run": {"true"}}
	}
	err = n.c.json(ctx, k, &out)
	return out, err
}

func points(spec holt.DiffSpec) url.Values {
	query := url.Values{}
	if spec.From != "" {
		query.Set("from", spec.From)
	}
	if spec.To != "" {
		query.Set("to", spec.To)
	}
	if len(spec.Paths) > 0 {
		query["path"] = spec.Paths
	}
	return query
}

// DiffPoints says which two states a comparison would be of.
func (n History) DiffPoints(ctx context.Context, ref string, spec holt.DiffSpec) (out holt.DiffSpec, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "diff", "points"), query: points(spec)}, &out)
	return out, err
}

// Diff calls fn for every path that differs, deletions first, until fn fails.
func (n History) Diff(ctx context.Context, ref string, spec holt.DiffSpec, fn func(holt.Change) error) error {
	k := call{method: http.MethodGet, path: join("workspaces", ref, "diff"), query: points(spec)}
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
			return holt.Errorf(holt.Unavailable, "the daemon sent a change that cannot be read: %w", err)
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
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "diff", "text"), query: points(spec)}, w)
}

// Restore makes a workspace, or paths of it, what it was at a checkpoint.
func (n History) Restore(ctx context.Context, ref string, spec holt.RestoreSpec, key string) (out holt.ChangeReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "restore"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Undo takes one run back and keeps what came later.
func (n History) Undo(ctx context.Context, ref string, spec holt.UndoSpec, key string) (out holt.ChangeReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "undo"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// History returns what became of a path, newest first.
func (n History) History(ctx context.Context, ref, path string) ([]holt.PathEvent, error) {
	var page holt.Page[holt.PathEvent]
	err := n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "history"), query: at(path)}, &page)
	return page.Items, err
}

// Blame returns who last wrote what is at a path.
func (n History) Blame(ctx context.Context, ref, path string) (out holt.Writer, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "blame"), query: at(path)}, &out)
	return out, err
}

// Receipt says what a run changed in a workspace.
func (n History) Receipt(ctx context.Context, ref, run string) (out holt.Receipt, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "receipts", run)}, &out)
	return out, err
}
