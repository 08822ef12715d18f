package workspace

import (
	"context"

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
	return w.tree.index.db.Query(ctx, sql, limits)
}
