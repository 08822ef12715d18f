package workspace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"holt"
	"holt/internal/store/db"
)

// Limits bound one user query. Zero fields take the defaults of [db.Limits].
type Limits = db.Limits

// QuerySource is a workspace to query, alone or together with others.
type QuerySource struct {
	W    *Workspace
	At   string // a checkpoint; then files and tags show that. Empty or [Live]: the present
	Name string // among others
}

// Query runs one read-only SELECT over the workspace as of now.
func (w *Workspace) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	return QuerySource{W: w}.Query(ctx, sql, limits)
}

// Query runs one read-only SELECT over the workspace alone.
func (q QuerySource) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	s, err := q.source()
	if err != nil {
		return holt.QueryResult{}, err
	}
	r, err := s.Query(ctx, sql, limits)
	return r, hinted(err, "ask "+askedViews)
}

// QueryAcross runs one read-only SELECT over several workspaces. All that the
// one database has for a query is there, with one column more: workspace, the
// name. What is read of each is one state of it, of about the same time.
func QueryAcross(ctx context.Context, all []QuerySource, sql string, limits Limits) (holt.QueryResult, error) {
	var sources []db.Source
	for _, q := range all {
		s, err := q.source()
		if err != nil {
			return holt.QueryResult{}, fmt.Errorf("%s: %w", q.Name, err)
		}
		sources = append(sources, s)
	}
	r, err := db.Across(ctx, "workspace", sources, sql, limits)
	return r, hinted(err, "each of these has a column workspace too: "+askedViews)
}

const askedViews = "files(path, dir, name, kind, size, mode, mtime, writer, run, …), tags(path, name, value), checkpoints(name, …), changes('FROM', 'TO'); files_at and tags_at have a column checkpoint too"

// hinted adds what there is to ask.
func hinted(err error, hint string) error {
	var e *holt.Error
	if errors.As(err, &e) && e.Hint == "" {
		e.Hint = hint
	}
	return err
}

// source writes what was answered to the index, and opens nothing.
func (q QuerySource) source() (db.Source, error) {
	s := db.Source{DB: q.W.tree.index.db, Name: q.Name, Tables: []db.Table{changesTable}, Keys: pathKeys, Unique: uniqueColumns}
	if q.At != "" && q.At != Live {
		c, err := q.W.FindCheckpoint(q.At)
		if err != nil {
			return s, err
		}
		s.Views = viewsAt(c.Name)
	}
	if err := q.W.Flush(); err != nil {
		return s, diskError("query workspace", err)
	}
	return s, nil
}

// viewsAt are temporary views that show a checkpoint as the views of the same
// names show the present.
func viewsAt(checkpoint string) string {
	where := " WHERE checkpoint = '" + strings.ReplaceAll(checkpoint, "'", "''") + "';"
	return "CREATE TEMP VIEW files AS SELECT " + filesColumns + " FROM main.files_at" + where +
		"CREATE TEMP VIEW tags AS SELECT path, name, value FROM main.tags_at" + where
}

// filesColumns are those of the view files, in order.
const filesColumns = "path, dir, name, kind, size, mode, mtime, ctime, btime, writer, writer_kind, run, terminal, uid, gid, nlink, ino, mtime_ns, target"

// uniqueColumns tell the rows of a view apart.
var uniqueColumns = map[string][]string{
	"files": {"path"}, "files_at": {"checkpoint", "path"}, "tags": {"path", "name"}, "tags_at": {"checkpoint", "path", "name"},
	"checkpoints": {"id"}, "changes": {"kind", "path", "old_path"},
}

// pathKeys find a file by its path: of the present, and at any checkpoint. No
// index has paths, so that to rename a directory changes no file's row.
var pathKeys = []db.Key{
	{View: "files", Column: "path", Where: pathKey, Params: pathParts},
	{View: "files_at", Column: "path", Where: pathKey, Params: pathParts},
}

const pathKey = `ino IN (
  SELECT e.ino FROM (SELECT ino FROM main.dir WHERE path = $dir UNION SELECT ino FROM main.past_dir WHERE path = $dir) d
    CROSS JOIN main.entry e ON e.parent = d.ino AND e.name = CAST($name AS BLOB)
  UNION SELECT e.ino FROM (SELECT ino FROM main.dir WHERE path = $dir UNION SELECT ino FROM main.past_dir WHERE path = $dir) d
    CROSS JOIN main.past_entry e ON e.parent = d.ino AND e.name = CAST($name AS BLOB))`

func pathParts(p string) map[string]string {
	dir, name := path.Split(p)
	if dir != "/" {
		dir = strings.TrimSuffix(dir, "/")
	}
	return map[string]string{"$dir": dir, "$name": name}
}
