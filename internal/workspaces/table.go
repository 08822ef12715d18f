package workspaces

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Schema makes the tables of this package. Names are unique within a tenant.
const Schema = `
CREATE TABLE workspace (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	state      TEXT NOT NULL,              -- creating, ready or deleting
	created    INTEGER NOT NULL,           -- nanoseconds since 1970
	files      INTEGER NOT NULL DEFAULT 0, -- files and bytes when it was last closed
	bytes      INTEGER NOT NULL DEFAULT 0,
	max_bytes  INTEGER NOT NULL DEFAULT 0, -- quota; 0: no bound
	max_files  INTEGER NOT NULL DEFAULT 0,
	parent     TEXT NOT NULL DEFAULT '',   -- workspace that it was forked from
	fork_point TEXT NOT NULL DEFAULT '',   -- checkpoint that both had then
	parent_was TEXT NOT NULL DEFAULT '',   -- name of the parent when that was deleted
	unpacked   INTEGER NOT NULL DEFAULT 1, -- it may have segments to pack: it is open, was killed so, or was closed with some
	tenant     TEXT NOT NULL DEFAULT 'default'
) WITHOUT ROWID;
CREATE UNIQUE INDEX workspace_name ON workspace (tenant, name);
CREATE TABLE host_mount (
	dir       TEXT PRIMARY KEY,
	workspace TEXT NOT NULL,
	read_only INTEGER NOT NULL,
	mount     BLOB NOT NULL               -- id of the mount and its keeper, see package mount
) WITHOUT ROWID;
`

// row is a row of table workspace.
type row struct {
	id           holt.WorkspaceID
	name, state  string
	created      time.Time
	files, bytes int64 // when it was last closed
	quota        holt.Quota
	parent       *holt.ForkPoint
	tenant       string
}

// table is the tables workspace and host_mount.
type table struct{ db *db.DB }

func (t table) rows(ctx context.Context, condition string, args ...any) ([]row, error) {
	var list []row
	err := t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, name, state, created, files, bytes, max_bytes, max_files, parent, fork_point,
			(SELECT name FROM workspace p WHERE p.id = workspace.parent AND p.state = 'ready'), parent_was, tenant FROM workspace `+condition, args, func(r *db.Row) error {
			one := row{
				id: holt.WorkspaceID(r.Text(0)), name: r.Text(1), state: r.Text(2),
				created: time.Unix(0, r.Int64(3)).UTC(), files: r.Int64(4), bytes: r.Int64(5),
				quota: holt.Quota{Bytes: r.Int64(6), Files: r.Int64(7)}, tenant: r.Text(12),
			}
			if parent := r.Text(8); parent != "" {
				one.parent = &holt.ForkPoint{ID: holt.WorkspaceID(parent), Checkpoint: r.Text(9), Name: r.Text(10), Was: r.Text(11)}
			}
			list = append(list, one)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read workspaces: %w", err)
	}
	return list, nil
}

// find returns a workspace by name or id.
func (t table) find(ctx context.Context, ref string) (row, error) {
	// A name contains no underscore, and an id does. A name is of the caller's tenant. An id may be of any, unless the caller is confined to one.
	list, err := t.rows(ctx, `WHERE (id = ?1 OR name = ?1 AND tenant = ?2) AND (?3 = '' OR tenant = ?3) AND state = 'ready'`, ref, holt.TenantOf(ctx), holt.Confined(ctx))
	if err != nil {
		return row{}, err
	}
	if len(list) == 0 {
		return row{}, holt.Errorf(holt.NotFound, "there is no workspace %q", clip(ref)).
			WithHint("holt workspace list shows the workspaces there are")
	}
	return list[0], nil
}

func clip(s string) string { return holt.Clip(s, 80) }

// write makes a change that survives power loss: a row must not be older than its directory.
func (t table) write(ctx context.Context, sql string, args ...any) error {
	return t.change(ctx, func(tx *db.Tx) error { return tx.Exec(sql, args...) })
}

func (t table) change(ctx context.Context, fn func(*db.Tx) error) error {
	err := t.db.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		err = fmt.Errorf("write control database: %w", err)
	}
	return hosterror.Describe(err)
}

func (t table) keepFigures(id holt.WorkspaceID, s workspace.Stats) error {
	return t.db.Write(context.Background(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE workspace SET files = ?, bytes = ?, unpacked = ? WHERE id = ?`, s.Files, s.Bytes, s.Waiting > 0, id)
	})
}

// opened records that a workspace may have segments to pack.
func (t table) opened(id holt.WorkspaceID) error {
	return t.db.Write(context.Background(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE workspace SET unpacked = 1 WHERE id = ? AND NOT unpacked`, id)
	})
}

// quota returns the quota of a workspace, which may be half-made. NotFound if it was deleted.
func (t table) quota(ctx context.Context, id holt.WorkspaceID) (holt.Quota, error) {
	list, err := t.rows(ctx, `WHERE id = ?`, string(id))
	if err != nil {
		return holt.Quota{}, err
	}
	if len(list) == 0 {
		return holt.Quota{}, errDeleted(id)
	}
	return list[0].quota, nil
}

// vacant returns AlreadyExists, with a hint, if a workspace of the tenant has the name.
func vacant(tx *db.Tx, tenant, name, hint string) error {
	taken := false
	err := tx.Query(`SELECT 1 FROM workspace WHERE name = ? AND tenant = ?`, []any{name, tenant}, func(*db.Row) error { taken = true; return nil })
	if err == nil && taken {
		return holt.Errorf(holt.AlreadyExists, "the workspace %q already exists", name).WithHint("%s", hint)
	}
	return err
}

// mountRow is a row of table host_mount.
type mountRow struct {
	dir      string
	id       holt.WorkspaceID
	readOnly bool
	mount    [16]byte
}

func (t table) mountRows(ctx context.Context) (list []mountRow, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		list, err = mountRows(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read host mounts: %w", err)
	}
	return list, nil
}

func mountRows(tx *db.Tx) (list []mountRow, err error) {
	err = tx.Query(`SELECT dir, workspace, read_only, mount FROM host_mount ORDER BY dir`, nil, func(r *db.Row) error {
		one := mountRow{dir: r.Text(0), id: holt.WorkspaceID(r.Text(1)), readOnly: r.Int64(2) != 0}
		copy(one.mount[:], r.Bytes(3))
		list = append(list, one)
		return nil
	})
	return list, err
}

// MountDirs returns the directories that the next daemon mounts workspaces on.
func MountDirs(tx *db.Tx) (dirs []string, err error) {
	rows, err := mountRows(tx)
	for _, r := range rows {
		dirs = append(dirs, r.dir)
	}
	return dirs, err
}

// insertMount records a mount, in the place of an earlier one on its directory.
func insertMount(tx *db.Tx, r mountRow) error {
	return tx.Exec(`INSERT OR REPLACE INTO host_mount (dir, workspace, read_only, mount) VALUES (?, ?, ?, ?)`, r.dir, r.id, r.readOnly, r.mount[:])
}

func (t table) forgetMount(ctx context.Context, dir string) error {
	return t.write(ctx, `DELETE FROM host_mount WHERE dir = ?`, dir)
}
