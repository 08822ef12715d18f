package computer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// record is a computer in the control database.
type record struct {
	holt.Computer
	origin      holt.Origin // that Parent points to, once it is read
	image       string      // digest of the root its disk is laid over
	workspaceID holt.WorkspaceID
	disk        holt.DiskID         // the root disk that it writes to; "" without one
	owned       bool                // the workspace goes with the computer
	snapshot    holt.SnapshotID     // its last one, or the one that it came from
	call        string              // idempotency key of the call that forked it
	used        int64               // when it was last in use, roughly: nanoseconds since 1970; see [idler.remember]
	network     *holt.NetworkPolicy // that it is made with; nil: its parent's, or the default
	withSecrets bool                // it is made with its parent's
	secretsOf   holt.ComputerID     // or with those of this one; "": none
	wish
	ancestry
	ungreeted bool // its guest was resumed and has not been given its identity yet; see [table.greet]
}

// recordColumns are the columns of a computer's row.
type recordColumns struct {
	fixed   []column // written once
	state   []column // written by every save
	derived []column // only read, or written by statements of their own
}

func (c recordColumns) all() []column { return slices.Concat(c.fixed, c.state, c.derived) }

func (r *record) columns() recordColumns {
	return recordColumns{
		fixed: []column{
			text("id", &r.ID), text("tenant", &r.Tenant), text("template", &r.Template), text("workspace", &r.workspaceID), text("workspace_name", &r.Workspace),
			number("workspace_mb", &r.WorkspaceSizeMB), text("parent", &r.origin.ID), text("parent_snapshot", &r.origin.Snapshot), text("lineage", &r.lineage),
			text("call", &r.call), text("job", &r.Job), stamp("created", &r.CreatedAt), idleTimeout("idle_ms", &r.IdleTimeout),
		},
		state: []column{
			text("name", &r.Name), text("image", &r.image), text("state", &r.State), text("reason", &r.Reason), text("engine", &r.Engine),
			number("cpus", &r.CPUs), number("memory_mb", &r.MemoryMB), number("disk_mb", &r.DiskSizeMB), boolean("owned", &r.owned), maybeStamp("started", &r.StartedAt),
			number("boot_ms", &r.BootMS), text("disk", &r.disk), text("snapshot", &r.snapshot),
			number("wish_cpus", &r.wishCPUs), number("wish_memory_mb", &r.wishMemoryMB), boolean("growing", &r.growing),
		},
		derived: []column{
			text("(SELECT name FROM computer p WHERE p.id = computer.parent)", &r.origin.Name), text("parent_was", &r.origin.Was), boolean("ungreeted", &r.ungreeted),
			number("used", &r.used), text("paused_by", &r.PausedBy), text("woken_by", &r.WokenBy), maybeStamp("woken", &r.WokenAt), number("wake_ms", &r.WakeMS),
		},
	}
}

// idleTimeout is an idle timeout in milliseconds; negative: never.
func idleTimeout(name string, p *holt.IdleTimeout) column {
	return column{name, idleMS(*p), func(row *db.Row, i int) error {
		*p = holt.NeverIdle
		if ms := row.Int64(i); ms > 0 {
			*p = holt.IdleTimeout(time.Duration(ms) * time.Millisecond)
		}
		return nil
	}}
}

// selectRecords returns the computers that a condition selects, without their budgets.
func selectRecords(tx *db.Tx, condition string, args ...any) (list []record, err error) {
	err = selectRows(tx, "computer", condition, args, func(r *record) []column { return r.columns().all() }, func(r *record) error {
		if r.origin.ID != "" {
			r.Parent = &r.origin
		}
		if r.State == holt.ComputerPaused {
			r.Snapshot = r.snapshot
		}
		if r.State != holt.ComputerPaused && r.State != holt.ComputerPausing {
			r.PausedBy = ""
		}
		list = append(list, *r)
		return nil
	})
	return list, err
}

// imageRef names its image.
func (r record) imageRef() string {
	if r.image != "" {
		return r.image
	}
	return r.Template
}

// table is the table computer of the control database.
type table struct {
	d    *db.DB
	room *room // nil: no machine starts
}

func (t table) list(ctx context.Context, condition string, args ...any) ([]record, error) {
	var list []record
	err := read(ctx, t.d, func(tx *db.Tx) (err error) {
		if list, err = selectRecords(tx, condition, args...); err != nil {
			return err
		}
		return addBudgets(tx, list)
	})
	if err != nil {
		return nil, fmt.Errorf("read computers: %w", err)
	}
	return list, nil
}

// all returns the computers that the caller may see.
func (t table) all(ctx context.Context) ([]record, error) {
	return t.list(ctx, `WHERE ?1 = '' OR tenant = ?1 ORDER BY name, id`, holt.Confined(ctx))
}

// find returns a computer by name or id.
func (t table) find(ctx context.Context, ref string) (record, error) {
	// Ids contain an underscore, names do not. A name is one of the caller's tenant; so is an id, if the caller is confined.
	list, err := t.list(ctx, `WHERE (id = ?1 OR name = ?1 AND tenant = ?2) AND (?3 = '' OR tenant = ?3)`, ref, holt.TenantOf(ctx), holt.Confined(ctx))
	if err != nil {
		return record{}, err
	}
	if len(list) == 0 {
		return record{}, holt.Errorf(holt.NotFound, "there is no computer %q", clip(ref)).
			WithHint("list the computers with holt computer list")
	}
	return list[0], nil
}

func (t table) byWorkspace(ctx context.Context, id holt.WorkspaceID) (record, bool, error) {
	list, err := t.list(ctx, `WHERE workspace = ?`, id)
	if err != nil || len(list) == 0 {
		return record{}, false, err
	}
	return list[0], true, nil
}

// insert adds a row. An empty name becomes a free one that avoid does not hold either. with adds
// related rows.
func (t table) insert(ctx context.Context, r *record, claim *idempotency.Claim, avoid func(name string) bool, with func(*db.Tx) error) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := r.belongs(tx); err != nil {
			return err
		}
		names, err := nameSet(tx, r.Tenant)
		if err != nil {
			return err
		}
		switch {
		case r.Name == "":
			r.Name = freeName(func(name string) bool { return names[name] || avoid(name) })
		case names[r.Name]:
			return computerTaken(r.Name)
		}
		if r.Workspace == "" {
			r.Workspace = r.Name
		}
		user, used, err := textOf(tx, `SELECT name FROM computer WHERE workspace = ?`, r.workspaceID)
		if err != nil {
			return err
		}
		if used {
			return holt.Errorf(holt.Conflict, "the workspace %q belongs to the computer %q", r.Workspace, user).
				WithHint("a workspace has one computer at a time: delete %s, or omit the workspace to get a new one", user)
		}
		if user, used, err = textOf(tx, `SELECT coalesce((SELECT name FROM computer c WHERE c.id = snapshot.computer), '') FROM snapshot WHERE workspace = ?`, r.workspaceID); err != nil {
			return err
		}
		if used {
			return holt.Errorf(holt.Conflict, "the workspace %[2]q holds snapshots of the computer %[1]q", user, r.Workspace).
				WithHint("fork it with holt workspace fork %s, and use the fork", r.Workspace)
		}
		if err := r.bound(tx); err != nil {
			return err
		}
		if err := t.admit(tx, *r); err != nil {
			return err
		}
		if err := claim.Bind(tx, string(r.ID)); err != nil {
			return err
		}
		if err := with(tx); err != nil {
			return err
		}
		if r.Parent != nil {
			r.origin = *r.Parent
		}
		c := r.columns()
		return insertRow(tx, "", "computer", append(c.fixed, c.state...))
	})
}

func computerTaken(name string) error {
	return holt.Errorf(holt.AlreadyExists, "a computer named %q already exists", name).WithHint("choose another name, or omit it to get a free one")
}

// save writes the state of a computer.
func (t table) save(ctx context.Context, r record) error { return t.saveBound(ctx, r, nil) }

// saveBound is save, and binds an idempotency key to the computer.
func (t table) saveBound(ctx context.Context, r record, claim *idempotency.Claim) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(r.ID)); err != nil {
			return err
		}
		return t.update(tx, r)
	})
}

// saveAdmitted is save for a computer that needs more than before, see [table.admit].
func (t table) saveAdmitted(ctx context.Context, r record) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := t.admit(tx, r); err != nil {
			return err
		}
		return t.update(tx, r)
	})
}

// update is save as part of a transaction.
func (t table) update(tx *db.Tx, r record) error {
	if _, used, err := textOf(tx, `SELECT 1 FROM computer WHERE name = ?1 AND id <> ?2 AND tenant = (SELECT tenant FROM computer WHERE id = ?2)`, r.Name, r.ID); err != nil {
		return err
	} else if used {
		return holt.Errorf(holt.AlreadyExists, "a computer named %q already exists", r.Name).WithHint("choose another name")
	}
	return updateRow(tx, "computer", string(r.ID), r.columns().state)
}

// move is update with another workspace of the same name.
func (t table) move(tx *db.Tx, r record) error {
	if err := t.update(tx, r); err != nil {
		return err
	}
	return tx.Exec(`UPDATE computer SET workspace = ? WHERE id = ?`, r.workspaceID, r.ID)
}

// greet records, as part of a transaction, whether a resumed guest has still to be given its
// identity, for the next daemon. It is apart from update, whose record may be older.
func (t table) greet(tx *db.Tx, id holt.ComputerID, owed bool) error {
	return tx.Exec(`UPDATE computer SET ungreeted = ?2 WHERE id = ?1 AND ungreeted <> ?2`, id, owed)
}

// erase removes all rows of a computer. The idempotency key of an unfinished create is free again.
// also removes rows elsewhere.
func (t table) erase(ctx context.Context, id holt.ComputerID, also ...func(*db.Tx, holt.ComputerID) error) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		for _, remove := range also {
			if err := remove(tx, id); err != nil {
				return err
			}
		}
		if err := tx.Exec(`UPDATE computer SET parent_was = coalesce((SELECT name FROM computer p WHERE p.id = ?1), '') WHERE parent = ?1`, id); err != nil {
			return err
		}
		for _, of := range []string{`DELETE FROM run WHERE computer = ?`, `DELETE FROM terminal WHERE computer = ?`, `DELETE FROM restore WHERE computer = ?`, `DELETE FROM identity WHERE computer = ?`, `DELETE FROM hold WHERE computer = ?`, `DELETE FROM network WHERE computer = ?`, `DELETE FROM secret WHERE computer = ?`, `DELETE FROM authority WHERE computer = ?`} {
			if err := tx.Exec(of, id); err != nil {
				return err
			}
		}
		if err := tx.Exec(`DELETE FROM idempotency WHERE ref = ? AND method = 'computer.create' AND answer IS NULL`, id); err != nil {
			return err
		}
		if err := tx.Exec(`DELETE FROM computer WHERE id = ?`, id); err != nil {
			return err
		}
		return eraseBudgets(tx, id)
	})
}

// read runs a read transaction of the control database.
func read(ctx context.Context, d *db.DB, fn func(*db.Tx) error) error {
	err := d.Read(ctx, fn)
	if err != nil && ctx.Err() != nil {
		return gone(ctx) // SQLite says only that it was interrupted
	}
	return err
}

// write runs a write transaction of the control database.
func write(ctx context.Context, d *db.DB, fn func(*db.Tx) error) error {
	return named(d.Write(ctx, fn))
}

// writeSync is write that survives power loss: a computer's record must not be older than its
// disks.
func writeSync(ctx context.Context, d *db.DB, fn func(*db.Tx) error) error {
	return named(d.WriteSync(ctx, fn))
}

// named adds to an error without a code where it comes from.
func named(err error) error {
	if err == nil || holt.CodeOf(err) != holt.Internal {
		return err
	}
	return hosterror.Full(fmt.Errorf("write control database: %w", err))
}

// nameSet returns the names of a tenant's computers.
func nameSet(tx *db.Tx, tenant string) (map[string]bool, error) {
	names := map[string]bool{}
	err := tx.Query(`SELECT name FROM computer WHERE tenant = ?`, []any{tenant}, func(row *db.Row) error {
		names[row.Text(0)] = true
		return nil
	})
	return names, err
}

// textOf returns the first column of a query; ok is false without a row.
func textOf(tx *db.Tx, sql string, args ...any) (text string, ok bool, err error) {
	err = tx.Query(sql, args, func(row *db.Row) error {
		text, ok = row.Text(0), true
		return nil
	})
	return text, ok, err
}
