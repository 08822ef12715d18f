package workspace

import (
	"context"
	"errors"

	"holt"
	"holt/db"
)

// Limits bound one user query. Zero fields take the defaults of [db.Limits].
type Limits = db.Limits

// Query runs one read-only SELECT over the workspace as of now.
func (w *Workspace) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	if err := w.Flush(); err != nil {
		return holt.QueryResult{}, diskError("query workspace", err)
	}
	r, err := w.tree.index.db.Query(ctx, sql, limits)
	var e *holt.Error
	if errors.As(err, &e) && e.Hint == "" {
		e.Hint = "ask the views files(path, dir, name, kind, size, mode, mtime, writer, run, …), tags(path, name, value), and files_at, which has a column checkpoint too"
	}
	return r, err
}
