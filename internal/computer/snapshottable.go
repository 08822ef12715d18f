package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/db"
)

// SnapshotSchema makes the table of snapshots, and says of computers where they
// came from. A checkpoint of the computer's workspace has the snapshot's id as its
// name.
const SnapshotSchema = `
CREATE TABLE snapshot (
	id        TEXT PRIMARY KEY,
	name      TEXT NOT NULL,    -- '' or unique for the computer
	computer  TEXT NOT NULL,
	kind      TEXT NOT NULL,    -- snapshot, fork or pause
	parent    TEXT NOT NULL,    -- the snapshot before; ''
	state     TEXT NOT NULL,    -- creating, ready or deleting
	disk      TEXT NOT NULL,    -- frozen with it; '' without a root disk
	next      TEXT NOT NULL,    -- laid over that one, and not yet the computer's: what its machine writes to once this snapshot
	                            -- was taken, or resumed; '' when neither is going on
	cpus      INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	bytes     INTEGER NOT NULL DEFAULT 0,
	report    TEXT NOT NULL DEFAULT '{}', -- JSON of machine.SnapshotReport
	created   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX snapshot_name ON snapshot (computer, name) WHERE name <> '';
CREATE INDEX snapshot_computer ON snapshot (computer, created);
ALTER TABLE computer ADD COLUMN snapshot TEXT NOT NULL DEFAULT '';        -- its last one, or the one that it came from
ALTER TABLE computer ADD COLUMN parent TEXT NOT NULL DEFAULT '';        -- the computer that it was forked from
ALTER TABLE computer ADD COLUMN parent_snapshot TEXT NOT NULL DEFAULT ''; -- and the snapshot
ALTER TABLE computer ADD COLUMN call TEXT NOT NULL DEFAULT '';          -- idempotency key of the call that forked it
`

// KeptSchema says of snapshots what is in the archive.
const KeptSchema = `
ALTER TABLE snapshot ADD COLUMN stored INTEGER NOT NULL DEFAULT 0; -- all of it is in the archive
ALTER TABLE snapshot ADD COLUMN grown INTEGER NOT NULL DEFAULT 0;  -- bytes by which that made the archive's packs grow
ALTER TABLE snapshot ADD COLUMN used INTEGER NOT NULL DEFAULT 0;   -- when a machine last went on from it; 0: never
ALTER TABLE snapshot DROP COLUMN bytes;
`

// LineageSchema keeps the name of the computer that one was forked from, for when it is deleted.
const LineageSchema = `
ALTER TABLE computer ADD COLUMN parent_was TEXT NOT NULL DEFAULT '';
`

// The states of a snapshot. What is creating or deleting when a daemon opens was
// left by one that was killed.
const (
	snapshotCreating = "creating"
	snapshotReady    = "ready"
	snapshotDeleting = "deleting"
)

// snapshot is one as the control database has it.
type snapshot struct {
	holt.Snapshot
	state      string
	workspace  holt.WorkspaceID // with its checkpoint
	disk, next holt.DiskID
	report     machine.SnapshotReport
}

// checkpoint is the name of the workspace's checkpoint that goes with it.
func (m snapshot) checkpoint() string { return string(m.ID) }

// snapshotTable is the table snapshot, and the directory with one machine image for
// each of its rows.
type snapshotTable struct {
	d   *db.DB
	dir string
}

// path is the directory of a snapshot's machine image.
func (t snapshotTable) path(id holt.SnapshotID) string { return filepath.Join(t.dir, string(id)) }

const snapshotColumns = `id, name, computer, kind, parent, state, disk, next, cpus, memory_mb, report, created, stored, grown,
	(SELECT name FROM computer c WHERE c.id = snapshot.computer), workspace, stopped,
	(SELECT workspace_name FROM computer c WHERE c.workspace = snapshot.workspace), disk_mb`

// tell says of a snapshot how it was taken.
func (m *snapshot) tell(report machine.SnapshotReport) {
	m.report = report
	m.PauseMS, m.Throttle, m.Forced = float64(report.Pause.Microseconds())/1000, report.Throttle, report.Forced
}

// list returns the snapshots that a condition selects.
func (t snapshotTable) list(ctx context.Context, condition string, args ...any) (all []snapshot, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+snapshotColumns+` FROM snapshot `+condition, args, func(row *db.Row) error {
			m := snapshot{
				Snapshot: holt.Snapshot{
					ID: holt.SnapshotID(row.Text(0)), Name: row.Text(1), ComputerID: holt.ComputerID(row.Text(2)), Kind: holt.SnapshotKind(row.Text(3)),
					Parent: holt.SnapshotID(row.Text(4)), CPUs: int(row.Int64(8)), MemoryMB: int(row.Int64(9)),
					CreatedAt: time.Unix(0, row.Int64(11)).UTC(), Archived: row.Int64(12) != 0, ArchivedBytes: row.Int64(13), Computer: row.Text(14),
					Stopped: row.Int64(16) != 0, Workspace: row.Text(17), DiskSizeMB: int(row.Int64(18)),
				},
				state: row.Text(5), workspace: holt.WorkspaceID(row.Text(15)), disk: holt.DiskID(row.Text(6)), next: holt.DiskID(row.Text(7)),
			}
			if err := json.Unmarshal(row.Bytes(10), &m.report); err != nil {
				return fmt.Errorf("decode snapshot %s: %w", m.ID, err)
			}
			m.tell(m.report)
			m.Bytes = t.allocated(m.ID)
			all = append(all, m)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	return all, nil
}

// of returns a ready snapshot of a computer by name or id, also as COMPUTER@SNAPSHOT.
func (t snapshotTable) of(ctx context.Context, r record, ref string) (snapshot, error) {
	if whose, at := holt.CutCheckpoint(ref); at != "" && (whose == r.Name || whose == string(r.ID)) {
		ref = at
	}
	list, err := t.list(ctx, `WHERE computer = ?1 AND (id = ?2 OR name = ?2) AND state = 'ready'`, r.ID, ref)
	if err != nil {
		return snapshot{}, err
	}
	if ref == "" || len(list) == 0 {
		return snapshot{}, noSnapshot(ref).WithHint("holt snapshot list %s shows those of %s", r.Name, r.Name)
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

// only returns the one snapshot that a list has.
func only(list []snapshot, ref string, err error) (snapshot, error) {
	switch {
	case err != nil:
		return snapshot{}, err
	case ref == "" || len(list) == 0:
		return snapshot{}, noSnapshot(ref).WithHint("holt snapshot list shows the snapshots there are; unnamed ones go after a while")
	case len(list) > 1:
		return snapshot{}, holt.Errorf(holt.Conflict, "several computers have a snapshot %q", clip(ref)).WithHint("say whose: COMPUTER@%s", clip(ref))
	}
	return list[0], nil
}

func noSnapshot(ref string) *holt.Error {
	return holt.Errorf(holt.NotFound, "there is no snapshot %q", clip(ref))
}

func snapshotTaken(computer, name string) error {
	return holt.Errorf(holt.AlreadyExists, "%s has a snapshot %q already", computer, name).WithHint("choose another name")
}

// insert makes the rows of a snapshot that is to be taken of r, and of the disk
// that r's machine will write to afterwards.
func (t snapshotTable) insert(ctx context.Context, k *disks, r record, m snapshot, claim *Claim) error {
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
			if err := k.insert(tx, m.next, m.disk, r.image); err != nil {
				return err
			}
		}
		return tx.Exec(`INSERT INTO snapshot (id, name, computer, kind, parent, state, workspace, stopped, disk, next, cpus, memory_mb, disk_mb, created) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
			m.ID, m.Name, r.ID, m.Kind, m.Parent, snapshotCreating, m.workspace, m.Stopped, m.disk, m.next, m.CPUs, m.MemoryMB, m.DiskSizeMB, m.CreatedAt.UnixNano())
	})
}

// ready says that a snapshot is complete, and what became of its computer: one
// cannot be true without the other.
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

// keepPresent says that the snapshot of a computer's present is ready and stays until it is
// deleted; one that nobody had named gets a name.
func (t snapshotTable) keepPresent(tx *db.Tx, m snapshot, name string) error {
	return tx.Exec(`UPDATE snapshot SET state = 'ready', name = iif(kind = 'manual', name, ?2), kind = 'manual' WHERE id = ?1`, m.ID, name)
}

// unkeepPresent undoes that: m is the snapshot as it was. That of a stopped computer goes.
func (t snapshotTable) unkeepPresent(tx *db.Tx, m snapshot) error {
	if m.Stopped {
		return tx.Exec(`UPDATE snapshot SET state = 'deleting' WHERE id = ?`, m.ID)
	}
	return tx.Exec(`UPDATE snapshot SET name = ?2, kind = ?3 WHERE id = ?1`, m.ID, m.Name, m.Kind)
}

// inWorkspace says whether a workspace has a snapshot.
func inWorkspace(tx *db.Tx, id holt.WorkspaceID) (bool, error) {
	_, ok, err := textOf(tx, `SELECT 1 FROM snapshot WHERE workspace = ?`, id)
	return ok, err
}

// leftBy returns the workspaces that restores of a computer have left: snapshots are in them.
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

// lastOf says whether a snapshot is the only one in a workspace that a restore left.
func (t snapshotTable) lastOf(ctx context.Context, m snapshot) (last bool, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		_, used, err := textOf(tx, `SELECT 1 FROM computer WHERE workspace = ?1 UNION ALL SELECT 1 FROM snapshot WHERE workspace = ?1 AND id <> ?2`, m.workspace, m.ID)
		last = !used
		return err
	})
	return last, err
}

// condemn says that a snapshot is being deleted, unless its computer is paused at it, or
// on its way back to it.
func (t snapshotTable) condemn(ctx context.Context, id holt.SnapshotID, claim *Claim) (done bool, err error) {
	return t.condemnIf(ctx, id, claim, `1`)
}

// condemnUnkept is that for a snapshot that nobody asked for: it may be one that stays by now.
func (t snapshotTable) condemnUnkept(ctx context.Context, id holt.SnapshotID) (done bool, err error) {
	return t.condemnIf(ctx, id, nil, `kind <> 'manual'`)
}

func (t snapshotTable) condemnIf(ctx context.Context, id holt.SnapshotID, claim *Claim, condition string) (done bool, err error) {
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

// setNext writes down the disk that is to be a resumed computer's.
func (t snapshotTable) setNext(tx *db.Tx, m snapshot) error {
	return tx.Exec(`UPDATE snapshot SET next = ? WHERE id = ?`, m.next, m.ID)
}

// grew says that storing a snapshot made the archive grow, and did not come to its end.
func (t snapshotTable) grew(ctx context.Context, id holt.SnapshotID, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	late := context.WithoutCancel(ctx) // one short write
	return write(late, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET grown = grown + ? WHERE id = ?`, bytes, id)
	})
}

// isStored says that all of a snapshot is in the archive.
func (t snapshotTable) isStored(ctx context.Context, id holt.SnapshotID, bytes int64) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET stored = 1, outdated = 0, grown = grown + ? WHERE id = ? AND state = 'ready'`, bytes, id)
	})
}

// isNotStored says that the archive has not all of a snapshot any more.
func (t snapshotTable) isNotStored(ctx context.Context, id holt.SnapshotID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE snapshot SET stored = 0 WHERE id = ?`, id) })
}

// touch says that a snapshot is used now.
func (t snapshotTable) touch(ctx context.Context, id holt.SnapshotID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE snapshot SET used = ? WHERE id = ?`, time.Now().UnixNano(), id)
	})
}

// leave says of all snapshots of a computer that they are being deleted, with it.
func (t snapshotTable) leave(ctx context.Context, id holt.ComputerID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE snapshot SET state = 'deleting' WHERE computer = ?`, id) })
}

func (t snapshotTable) erase(ctx context.Context, id holt.SnapshotID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM snapshot WHERE id = ?`, id) })
}

// forksOf returns the computers that were forked from a snapshot.
func (t snapshotTable) forksOf(ctx context.Context, id holt.SnapshotID) ([]holt.Dependent, error) {
	return t.forks(ctx, `parent_snapshot = ?`, id)
}

// forksOfComputer returns the computers that were forked from another.
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

// relatives are the snapshots that go with a computer, and its forks, which stay.
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
