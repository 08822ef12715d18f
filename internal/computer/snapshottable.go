package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// The states of a snapshot. What is creating or deleting when a daemon opens was
// left by one that was killed.
const (
	snapshotCreating = "creating"
	snapshotReady    = "ready"
	snapshotDeleting = "deleting"
)

// snapshot is a snapshot in the control database.
type snapshot struct {
	holt.Snapshot
	state      string
	workspace  holt.WorkspaceID // with its checkpoint
	disk, next holt.DiskID
	report     machine.SnapshotReport
}

// checkpoint is the name of the workspace's checkpoint.
func (m snapshot) checkpoint() string { return string(m.ID) }

// snapshotTable is the table snapshot, and the directory with a machine image for each row.
type snapshotTable struct {
	d   *db.DB
	dir string
}

func (t snapshotTable) path(id holt.SnapshotID) string { return filepath.Join(t.dir, string(id)) }

// columns are the columns of a snapshot's row: those that are written when it is begun, and the rest.
func (m *snapshot) columns() (begun, rest []column) {
	return []column{
			text("id", &m.ID), text("name", &m.Name), text("computer", &m.ComputerID), text("kind", &m.Kind), text("parent", &m.Parent), text("state", &m.state),
			boolean("stopped", &m.Stopped), text("workspace", &m.workspace), text("disk", &m.disk), text("next", &m.next),
			number("cpus", &m.CPUs), number("memory_mb", &m.MemoryMB), number("disk_mb", &m.DiskSizeMB), stamp("created", &m.CreatedAt),
		}, []column{
			encoded("report", &m.report), boolean("stored", &m.Archived), number("grown", &m.ArchivedBytes),
			text("(SELECT name FROM computer c WHERE c.id = snapshot.computer)", &m.Computer),
			text("(SELECT workspace_name FROM computer c WHERE c.workspace = snapshot.workspace)", &m.Workspace),
		}
}

// tell sets how the snapshot was taken.
func (m *snapshot) tell(report machine.SnapshotReport) {
	m.report = report
	m.PauseMS, m.Throttle, m.Forced = float64(report.Pause.Microseconds())/1000, report.Throttle, report.Forced
}

// list returns the snapshots that a condition selects.
func (t snapshotTable) list(ctx context.Context, condition string, args ...any) (all []snapshot, err error) {
	columns := func(m *snapshot) []column { begun, rest := m.columns(); return append(begun, rest...) }
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return selectRows(tx, "snapshot", condition, args, columns, func(m *snapshot) error {
			m.tell(m.report)
			m.Bytes = t.allocated(m.ID)
			all = append(all, *m)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	return all, nil
}

// of returns a ready snapshot of a computer by name or id, or as COMPUTER@SNAPSHOT.
func (t snapshotTable) of(ctx context.Context, r record, ref string) (snapshot, error) {
	if whose, at := holt.CutCheckpoint(ref); at != "" && (whose == r.Name || whose == string(r.ID)) {
		ref = at
	}
	list, err := t.list(ctx, `WHERE computer = ?1 AND (id = ?2 OR name = ?2) AND state = 'ready'`, r.ID, ref)
	if err != nil {
		return snapshot{}, err
	}
	if ref == "" || len(list) == 0 {
		return snapshot{}, noSnapshot(ref).WithHint("list the snapshots with holt snapshot list %s", r.Name)
	}
	return list[0], nil
}

// get returns a ready snapshot by id.
func (t snapshotTable) get(ctx context.Context, id holt.SnapshotID) (snapshot, error) {
	list, err := t.list(ctx, `WHERE id = ? AND state = 'ready'`, id)
	return only(list, string(id), err)
}

// find returns a ready snapshot by id, by a name that only one has, or as COMPUTER@SNAPSHOT.
func (t snapshotTable) find(ctx context.Context, ref string) (snapshot, error) {
	if whose, at := holt.CutCheckpoint(ref); at != "" {
		r, err := table{d: t.d}.find(ctx, whose)
		if err != nil {
			return snapshot{}, err
		}
		return t.of(ctx, r, at)
	}
	in := holt.TenantOf(ctx)
	if _, err := holt.ParseSnapshotID(ref); err == nil {
		in = holt.Confined(ctx)
	}
	list, err := t.list(ctx, `WHERE (id = ?1 OR name = ?1) AND state = 'ready' AND `+ofTenant(2)+` LIMIT 2`, ref, in)
	return only(list, ref, err)
}

// only returns the single snapshot of a list.
func only(list []snapshot, ref string, err error) (snapshot, error) {
	switch {
	case err != nil:
		return snapshot{}, err
	case ref == "" || len(list) == 0:
		return snapshot{}, noSnapshot(ref).WithHint("list the snapshots with holt snapshot list; automatic ones are removed after a while")
	case len(list) > 1:
		return snapshot{}, holt.Errorf(holt.Conflict, "several computers have a snapshot named %q", clip(ref)).WithHint("name it as COMPUTER@%s", clip(ref))
	}
	return list[0], nil
}

func noSnapshot(ref string) *holt.Error {
	return holt.Errorf(holt.NotFound, "there is no snapshot %q", clip(ref))
}

func snapshotTaken(computer, name string) error {
	return holt.Errorf(holt.AlreadyExists, "%s already has a snapshot named %q", computer, name).WithHint("choose another name")
}

// insert adds the rows of a new snapshot of r, and of the disk that r's machine will write to
// afterwards.
func (t snapshotTable) insert(ctx context.Context, k *disks, r record, m snapshot, claim *idempotency.Claim) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if m.Name != "" {
			_, taken, err := textOf(tx, `SELECT 1 FROM snapshot WHERE computer = ? AND name = ?`, r.ID, m.Name)
			if err != nil {
				return err
			}
			if taken {
				return snapshotTaken(r.Name, m.Name)
			}
		}
		if err := claim.Bind(tx, string(m.ID)); err != nil {
			return err
		}
		if m.next != "" {
			if err := k.insert(tx, m.next, m.disk, &r); err != nil {
				return err
			}
		}
		m.ComputerID, m.state = r.ID, snapshotCreating
		begun, _ := m.columns()
		return insertRow(tx, "", "snapshot", begun)
	})
}

// ready records that a snapshot is complete, and the new state of its computer, in one transaction.
func (t snapshotTable) ready(ctx context.Context, computers table, m snapshot, r record) error {
	report, err := json.Marshal(m.report)
	if err != nil {
		return fmt.Errorf("encode report of snapshot: %w", err)
	}
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := computers.update(tx, r); err != nil {
			return err
		}
		return tx.Exec(`UPDATE snapshot SET state = 'ready', next = '', report = ?2, cpus = ?3, memory_mb = ?4 WHERE id = ?1`,
			m.ID, string(report), m.CPUs, m.MemoryMB)
	})
}

// keepPresent makes the snapshot of the state before a restore ready and permanent, and names it if
// it has no name.
func (t snapshotTable) keepPresent(tx *db.Tx, m snapshot, name string) error {
	return tx.Exec(`UPDATE snapshot SET state = 'ready', name = iif(kind = 'manual', name, ?2), kind = 'manual' WHERE id = ?1`, m.ID, name)
}

// unkeepPresent undoes keepPresent: m is the snapshot as it was. That of a stopped computer is
// deleted.
func (t snapshotTable) unkeepPresent(tx *db.Tx, m snapshot) error {
	if m.Stopped {
		return tx.Exec(`UPDATE snapshot SET state = 'deleting' WHERE id = ?`, m.ID)
	}
	return tx.Exec(`UPDATE snapshot SET name = ?2, kind = ?3 WHERE id = ?1`, m.ID, m.Name, m.Kind)
}

// inWorkspace reports whether a workspace holds a snapshot.
func inWorkspace(tx *db.Tx, id holt.WorkspaceID) (bool, error) {
	_, ok, err := textOf(tx, `SELECT 1 FROM snapshot WHERE workspace = ?`, id)
	return ok, err
}

// leftBy returns the workspaces that restores of a computer have left, and that still hold
// snapshots.
func (t snapshotTable) leftBy(ctx context.Context, r record) (all []holt.WorkspaceID, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT workspace FROM snapshot WHERE computer = ? AND workspace <> ? GROUP BY workspace ORDER BY max(created) DESC`,
			[]any{r.ID, r.workspaceID}, func(row *db.Row) error {
				all = append(all, holt.WorkspaceID(row.Text(0)))
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	return all, nil
}

// lastOf reports whether a snapshot is the last use of a workspace.
func (t snapshotTable) lastOf(ctx context.Context, m snapshot) (last bool, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		_, used, err := textOf(tx, `SELECT 1 FROM computer WHERE workspace = ?1 UNION ALL SELECT 1 FROM snapshot WHERE workspace = ?1 AND id <> ?2`, m.workspace, m.ID)
		last = !used
		return err
	})
	return last, err
}

// markDeleting marks a snapshot as being deleted, unless its computer is paused at it or being
// restored to it.
func (t snapshotTable) markDeleting(ctx context.Context, id holt.SnapshotID, claim *idempotency.Claim) (done bool, err error) {
	return t.markDeletingIf(ctx, id, claim, `1`)
}

// markDeletingAutomatic is markDeleting for a snapshot that may have become permanent.
func (t snapshotTable) markDeletingAutomatic(ctx context.Context, id holt.SnapshotID) (done bool, err error) {
	return t.markDeletingIf(ctx, id, nil, `kind <> 'manual'`)
}

func (t snapshotTable) markDeletingIf(ctx context.Context, id holt.SnapshotID, claim *idempotency.Claim, condition string) (done bool, err error) {
	err = writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(id)); err != nil {
			return err
		}
		return tx.Query(`UPDATE snapshot SET state = 'deleting' WHERE id = ?1 AND `+condition+` AND NOT EXISTS
			(SELECT 1 FROM computer c WHERE c.id = snapshot.computer AND c.snapshot = snapshot.id AND c.state IN ('pausing', 'paused', 'resuming'))
			AND NOT EXISTS (SELECT 1 FROM restore WHERE restore.snapshot = ?1) RETURNING id`,
			[]any{id}, func(*db.Row) error { done = true; return nil })
	})
	return done, err
}

// setNext records a resumed computer's new disk.
func (t snapshotTable) setNext(tx *db.Tx, m snapshot) error {
	return tx.Exec(`UPDATE snapshot SET next = ? WHERE id = ?`, m.next, m.ID)
}

// grew records the growth of the archive by an interrupted store.
func (t snapshotTable) grew(ctx context.Context, id holt.SnapshotID, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	late := context.WithoutCancel(ctx) // one short write
	return write(late, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET grown = grown + ? WHERE id = ?`, bytes, id)
	})
}

// isStored records that all of a snapshot is archived.
func (t snapshotTable) isStored(ctx context.Context, id holt.SnapshotID, bytes int64) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET stored = 1, outdated = 0, grown = grown + ? WHERE id = ? AND state = 'ready'`, bytes, id)
	})
}

// isNotStored records that the archive lacks a part of a snapshot.
func (t snapshotTable) isNotStored(ctx context.Context, id holt.SnapshotID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE snapshot SET stored = 0 WHERE id = ?`, id) })
}

// touch records a use of a snapshot.
func (t snapshotTable) touch(ctx context.Context, id holt.SnapshotID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET used = ? WHERE id = ?`, time.Now().UnixNano(), id)
	})
}

// leave marks all snapshots of a computer as being deleted.
func (t snapshotTable) leave(ctx context.Context, id holt.ComputerID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE snapshot SET state = 'deleting' WHERE computer = ?`, id) })
}

func (t snapshotTable) erase(ctx context.Context, id holt.SnapshotID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM snapshot WHERE id = ?`, id) })
}

func (t snapshotTable) forksOf(ctx context.Context, id holt.SnapshotID) ([]holt.Dependent, error) {
	return t.forks(ctx, `parent_snapshot = ?`, id)
}

func (t snapshotTable) forksOfComputer(ctx context.Context, id holt.ComputerID) ([]holt.Dependent, error) {
	return t.forks(ctx, `parent = ?`, id)
}

func (t snapshotTable) forks(ctx context.Context, where string, id any) (all []holt.Dependent, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, name FROM computer WHERE `+where+` AND state <> 'creating' ORDER BY name`, []any{id}, func(row *db.Row) error {
			all = append(all, holt.Dependent{ID: holt.ComputerID(row.Text(0)), Name: row.Text(1)})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read forks: %w", err)
	}
	return all, nil
}

// relatives returns the snapshots that are deleted with a computer, and its forks, which stay.
func (t snapshotTable) relatives(ctx context.Context, id holt.ComputerID) (out holt.DeletedComputer, err error) {
	all, err := t.list(ctx, `WHERE state = 'ready' AND computer = ? ORDER BY created, id`, id)
	if err != nil {
		return out, err
	}
	for _, m := range all {
		out.Snapshots = append(out.Snapshots, holt.NamedSnapshot{ID: m.ID, Name: m.Name})
	}
	out.Forks, err = t.forksOfComputer(ctx, id)
	return out, err
}
