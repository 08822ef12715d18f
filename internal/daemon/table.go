package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// row is a workspace as the control database has it.
type row struct {
	id           holt.WorkspaceID
	name, state  string
	created      time.Time
	files, bytes int64 // when it was last closed
	quota        holt.Quota
	parent       *holt.ForkPoint
	tenant       string
}

// workspaceTable is the tables workspace and host_mount of the control database.
type workspaceTable struct{ db *db.DB }

func (t workspaceTable) rows(ctx context.Context, condition string, args ...any) ([]row, error) {
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
func (t workspaceTable) find(ctx context.Context, ref string) (row, error) {
	// No name holds an underscore, every id does. A name is one's own tenant's; so is an id, for who is confined.
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

// write makes a durable change: a row must not be older than its directory.
func (t workspaceTable) write(ctx context.Context, sql string, args ...any) error {
	return t.change(ctx, func(tx *db.Tx) error { return tx.Exec(sql, args...) })
}

func (t workspaceTable) change(ctx context.Context, fn func(*db.Tx) error) error {
	err := t.db.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		err = fmt.Errorf("write control database: %w", err)
	}
	return described(err)
}

func (t workspaceTable) keepFigures(id holt.WorkspaceID, s workspace.Stats) error {
	return t.db.Write(context.Background(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE workspace SET files = ?, bytes = ?, unpacked = ? WHERE id = ?`, s.Files, s.Bytes, s.Waiting > 0, id)
	})
}

// opened notes that a workspace may have segments to pack from now on.
func (t workspaceTable) opened(id holt.WorkspaceID) error {
	return t.db.Write(context.Background(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE workspace SET unpacked = 1 WHERE id = ? AND NOT unpacked`, id)
	})
}

// quota returns what bounds a workspace, made or half-made; NotFound if it is gone.
func (t workspaceTable) quota(ctx context.Context, id holt.WorkspaceID) (holt.Quota, error) {
	list, err := t.rows(ctx, `WHERE id = ?`, string(id))
	if err != nil {
		return holt.Quota{}, err
	}
	if len(list) == 0 {
		return holt.Quota{}, errGoing(id)
	}
	return list[0].quota, nil
}

// vacant refuses a name that a workspace of the tenant has, with a hint.
func vacant(tx *db.Tx, tenant, name, hint string) error {
	taken := false
	err := tx.Query(`SELECT 1 FROM workspace WHERE name = ? AND tenant = ?`, []any{name, tenant}, func(*db.Row) error { taken = true; return nil })
	if err == nil && taken {
		return holt.Errorf(holt.AlreadyExists, "there is a workspace %q already", name).WithHint("%s", hint)
	}
	return err
}

type mountRow struct {
	dir      string
	id       holt.WorkspaceID
	readOnly bool
}

func (t workspaceTable) mountRows(ctx context.Context) (list []mountRow, err error) {
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
	err = tx.Query(`SELECT dir, workspace, read_only FROM host_mount ORDER BY dir`, nil, func(r *db.Row) error {
		list = append(list, mountRow{r.Text(0), holt.WorkspaceID(r.Text(1)), r.Int64(2) != 0})
		return nil
	})
	return list, err
}

// MountsOf returns where the next daemon of a data directory, which none
// serves now, mounts workspaces again by itself. It changes nothing.
func MountsOf(dataDir string) (dirs []string, err error) {
	err = db.ReadFile(filepath.Join(dataDir, controlFile), func(tx *db.Tx) error {
		rows, err := mountRows(tx)
		for _, r := range rows {
			dirs = append(dirs, r.dir)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read host mounts: %w", err)
	}
	return dirs, nil
}

func (t workspaceTable) forgetMount(ctx context.Context, dir string) error {
	return t.write(ctx, `DELETE FROM host_mount WHERE dir = ?`, dir)
}
