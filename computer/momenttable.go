package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"holt"
	"holt/db"
	"holt/machine"
)

// MomentSchema makes the table of moments, and says of computers where they
// came from. A checkpoint of the computer's workspace has the moment's id as its
// name.
const MomentSchema = `
CREATE TABLE moment (
	id        TEXT PRIMARY KEY,
	name      TEXT NOT NULL,    -- '' or unique for the computer
	computer  TEXT NOT NULL,
	kind      TEXT NOT NULL,    -- snapshot, fork or pause
	parent    TEXT NOT NULL,    -- the moment before; ''
	state     TEXT NOT NULL,    -- creating, ready or deleting
	disk      TEXT NOT NULL,    -- frozen with it; '' without a root disk
	next      TEXT NOT NULL,    -- laid over that one, and not yet the computer's: what its machine writes to once this moment
	                            -- was taken, or resumed; '' when neither is going on
	cpus      INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	bytes     INTEGER NOT NULL DEFAULT 0,
	report    TEXT NOT NULL DEFAULT '{}', -- JSON of machine.SnapshotReport
	created   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX moment_name ON moment (computer, name) WHERE name <> '';
CREATE INDEX moment_computer ON moment (computer, created);
ALTER TABLE computer ADD COLUMN moment TEXT NOT NULL DEFAULT '';        -- its last one, or the one that it came from
ALTER TABLE computer ADD COLUMN parent TEXT NOT NULL DEFAULT '';        -- the computer that it was forked from
ALTER TABLE computer ADD COLUMN parent_moment TEXT NOT NULL DEFAULT ''; -- and the moment
ALTER TABLE computer ADD COLUMN call TEXT NOT NULL DEFAULT '';          -- idempotency key of the call that forked it
`

// KeptSchema says of moments what is in the archive.
const KeptSchema = `
ALTER TABLE moment ADD COLUMN stored INTEGER NOT NULL DEFAULT 0; -- all of it is in the archive
ALTER TABLE moment ADD COLUMN grown INTEGER NOT NULL DEFAULT 0;  -- bytes by which that made the archive's packs grow
ALTER TABLE moment ADD COLUMN used INTEGER NOT NULL DEFAULT 0;   -- when a machine last went on from it; 0: never
ALTER TABLE moment DROP COLUMN bytes;
`

// LineageSchema keeps the name of the computer that one was forked from, for when it is deleted.
const LineageSchema = `
ALTER TABLE computer ADD COLUMN parent_was TEXT NOT NULL DEFAULT '';
`

// The states of a moment. What is creating or deleting when a daemon opens was
// left by one that was killed.
const (
	momentCreating = "creating"
	momentReady    = "ready"
	momentDeleting = "deleting"
)

// moment is one as the control database has it.
type moment struct {
	holt.Moment
	state      string
	workspace  holt.WorkspaceID // with its checkpoint
	disk, next holt.DiskID
	report     machine.SnapshotReport
}

// checkpoint is the name of the workspace's checkpoint that goes with it.
func (m moment) checkpoint() string { return string(m.ID) }

// momentTable is the table moment, and the directory with one machine image for
// each of its rows.
type momentTable struct {
	d   *db.DB
	dir string
}

// path is the directory of a moment's machine image.
func (t momentTable) path(id holt.MomentID) string { return filepath.Join(t.dir, string(id)) }

const momentColumns = `id, name, computer, kind, parent, state, disk, next, cpus, memory_mb, report, created, stored, grown,
	(SELECT name FROM computer c WHERE c.id = moment.computer), workspace, stopped,
	(SELECT workspace_name FROM computer c WHERE c.workspace = moment.workspace), disk_mb`

// tell says of a moment how it was taken.
func (m *moment) tell(report machine.SnapshotReport) {
	m.report = report
	m.PauseMS, m.Throttle, m.Forced = float64(report.Pause.Microseconds())/1000, report.Throttle, report.Forced
}

// list returns the moments that a condition selects.
func (t momentTable) list(ctx context.Context, condition string, args ...any) (all []moment, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+momentColumns+` FROM moment `+condition, args, func(row *db.Row) error {
			m := moment{
				Moment: holt.Moment{
					ID: holt.MomentID(row.Text(0)), Name: row.Text(1), ComputerID: holt.ComputerID(row.Text(2)), Kind: holt.MomentKind(row.Text(3)),
					Parent: holt.MomentID(row.Text(4)), CPUs: int(row.Int64(8)), MemoryMB: int(row.Int64(9)),
					CreatedAt: time.Unix(0, row.Int64(11)).UTC(), Archived: row.Int64(12) != 0, ArchivedBytes: row.Int64(13), Computer: row.Text(14),
					Stopped: row.Int64(16) != 0, Workspace: row.Text(17), DiskSizeMB: int(row.Int64(18)),
				},
				state: row.Text(5), workspace: holt.WorkspaceID(row.Text(15)), disk: holt.DiskID(row.Text(6)), next: holt.DiskID(row.Text(7)),
			}
			if err := json.Unmarshal(row.Bytes(10), &m.report); err != nil {
				return fmt.Errorf("decode moment %s: %w", m.ID, err)
			}
			m.tell(m.report)
			m.Bytes = t.allocated(m.ID)
			all = append(all, m)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read moments: %w", err)
	}
	return all, nil
}

// of returns a ready moment of a computer by name or id, also as COMPUTER@MOMENT.
func (t momentTable) of(ctx context.Context, r record, ref string) (moment, error) {
	if whose, at := holt.CutCheckpoint(ref); at != "" && (whose == r.Name || whose == string(r.ID)) {
		ref = at
	}
	list, err := t.list(ctx, `WHERE computer = ?1 AND (id = ?2 OR name = ?2) AND state = 'ready'`, r.ID, ref)
	if err != nil {
		return moment{}, err
	}
	if ref == "" || len(list) == 0 {
		return moment{}, noMoment(ref).WithHint("holt moment list %s shows those of %s", r.Name, r.Name)
	}
	return list[0], nil
}

// get returns a ready moment by id.
func (t momentTable) get(ctx context.Context, id holt.MomentID) (moment, error) {
	list, err := t.list(ctx, `WHERE id = ? AND state = 'ready'`, id)
	return only(list, string(id), err)
}

// find returns a ready moment by id, by a name that only one has, or as COMPUTER@MOMENT.
func (t momentTable) find(ctx context.Context, ref string) (moment, error) {
	if whose, at := holt.CutCheckpoint(ref); at != "" {
		r, err := table{d: t.d}.find(ctx, whose)
		if err != nil {
			return moment{}, err
		}
		return t.of(ctx, r, at)
	}
	in := holt.TenantOf(ctx)
	if _, err := holt.ParseMomentID(ref); err == nil {
		in = holt.Confined(ctx)
	}
	list, err := t.list(ctx, `WHERE (id = ?1 OR name = ?1) AND state = 'ready' AND `+ofTenant(2)+` LIMIT 2`, ref, in)
	return only(list, ref, err)
}

// only returns the one moment that a list has.
func only(list []moment, ref string, err error) (moment, error) {
	switch {
	case err != nil:
		return moment{}, err
	case ref == "" || len(list) == 0:
		return moment{}, noMoment(ref).WithHint("holt moment list shows the moments there are; unnamed ones go after a while")
	case len(list) > 1:
		return moment{}, holt.Errorf(holt.Conflict, "several computers have a moment %q", clip(ref)).WithHint("say whose: COMPUTER@%s", clip(ref))
	}
	return list[0], nil
}

func noMoment(ref string) *holt.Error {
	return holt.Errorf(holt.NotFound, "there is no moment %q", clip(ref))
}

func momentTaken(computer, name string) error {
	return holt.Errorf(holt.AlreadyExists, "%s has a moment %q already", computer, name).WithHint("choose another name")
}

// insert makes the rows of a moment that is to be taken of r, and of the disk
// that r's machine will write to afterwards.
func (t momentTable) insert(ctx context.Context, k *disks, r record, m moment, claim *Claim) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if m.Name != "" {
			_, taken, err := textOf(tx, `SELECT 1 FROM moment WHERE computer = ? AND name = ?`, r.ID, m.Name)
			if err != nil {
				return err
			}
			if taken {
				return momentTaken(r.Name, m.Name)
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
		return tx.Exec(`INSERT INTO moment (id, name, computer, kind, parent, state, workspace, stopped, disk, next, cpus, memory_mb, disk_mb, created) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
			m.ID, m.Name, r.ID, m.Kind, m.Parent, momentCreating, m.workspace, m.Stopped, m.disk, m.next, m.CPUs, m.MemoryMB, m.DiskSizeMB, m.CreatedAt.UnixNano())
	})
}

// ready says that a moment is complete, and what became of its computer: one
// cannot be true without the other.
func (t momentTable) ready(ctx context.Context, computers table, m moment, r record) error {
	report, err := json.Marshal(m.report)
	if err != nil {
		return fmt.Errorf("encode report of snapshot: %w", err)
	}
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := computers.update(tx, r); err != nil {
			return err
		}
		return tx.Exec(`UPDATE moment SET state = 'ready', next = '', report = ?2, cpus = ?3, memory_mb = ?4 WHERE id = ?1`,
			m.ID, string(report), m.CPUs, m.MemoryMB)
	})
}

// keepPresent says that the moment of a computer's present is ready and stays until it is
// deleted; one that nobody had named gets a name.
func (t momentTable) keepPresent(tx *db.Tx, m moment, name string) error {
	return tx.Exec(`UPDATE moment SET state = 'ready', name = iif(kind = 'snapshot', name, ?2), kind = 'snapshot' WHERE id = ?1`, m.ID, name)
}

// unkeepPresent undoes that: m is the moment as it was. That of a stopped computer goes.
func (t momentTable) unkeepPresent(tx *db.Tx, m moment) error {
	if m.Stopped {
		return tx.Exec(`UPDATE moment SET state = 'deleting' WHERE id = ?`, m.ID)
	}
	return tx.Exec(`UPDATE moment SET name = ?2, kind = ?3 WHERE id = ?1`, m.ID, m.Name, m.Kind)
}

// inWorkspace says whether a workspace has a moment.
func inWorkspace(tx *db.Tx, id holt.WorkspaceID) (bool, error) {
	_, ok, err := textOf(tx, `SELECT 1 FROM moment WHERE workspace = ?`, id)
	return ok, err
}

// leftBy returns the workspaces that restores of a computer have left: moments are in them.
func (t momentTable) leftBy(ctx context.Context, r record) (all []holt.WorkspaceID, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT workspace FROM moment WHERE computer = ? AND workspace <> ? GROUP BY workspace ORDER BY max(created) DESC`,
			[]any{r.ID, r.workspaceID}, func(row *db.Row) error {
				all = append(all, holt.WorkspaceID(row.Text(0)))
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read moments: %w", err)
	}
	return all, nil
}

// lastOf says whether a moment is the only one in a workspace that a restore left.
func (t momentTable) lastOf(ctx context.Context, m moment) (last bool, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		_, used, err := textOf(tx, `SELECT 1 FROM computer WHERE workspace = ?1 UNION ALL SELECT 1 FROM moment WHERE workspace = ?1 AND id <> ?2`, m.workspace, m.ID)
		last = !used
		return err
	})
	return last, err
}

// condemn says that a moment is being deleted, unless its computer is paused at it, or
// on its way back to it.
func (t momentTable) condemn(ctx context.Context, id holt.MomentID, claim *Claim) (done bool, err error) {
	return t.condemnIf(ctx, id, claim, `1`)
}

// condemnUnkept is that for a moment that nobody asked for: it may be one that stays by now.
func (t momentTable) condemnUnkept(ctx context.Context, id holt.MomentID) (done bool, err error) {
	return t.condemnIf(ctx, id, nil, `kind <> 'snapshot'`)
}

func (t momentTable) condemnIf(ctx context.Context, id holt.MomentID, claim *Claim, condition string) (done bool, err error) {
	err = writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(id)); err != nil {
			return err
		}
		return tx.Query(`UPDATE moment SET state = 'deleting' WHERE id = ?1 AND `+condition+` AND NOT EXISTS
			(SELECT 1 FROM computer c WHERE c.id = moment.computer AND c.moment = moment.id AND c.state IN ('pausing', 'paused', 'resuming'))
			AND NOT EXISTS (SELECT 1 FROM restore WHERE restore.moment = ?1) RETURNING id`,
			[]any{id}, func(*db.Row) error { done = true; return nil })
	})
	return done, err
}

// setNext writes down the disk that is to be a resumed computer's.
func (t momentTable) setNext(tx *db.Tx, m moment) error {
	return tx.Exec(`UPDATE moment SET next = ? WHERE id = ?`, m.next, m.ID)
}

// grew says that storing a moment made the archive grow, and did not come to its end.
func (t momentTable) grew(ctx context.Context, id holt.MomentID, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	late := context.WithoutCancel(ctx) // one short write
	return write(late, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE moment SET grown = grown + ? WHERE id = ?`, bytes, id)
	})
}

// isStored says that all of a moment is in the archive.
func (t momentTable) isStored(ctx context.Context, id holt.MomentID, bytes int64) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE moment SET stored = 1, outdated = 0, grown = grown + ? WHERE id = ? AND state = 'ready'`, bytes, id)
	})
}

// isNotStored says that the archive has not all of a moment any more.
func (t momentTable) isNotStored(ctx context.Context, id holt.MomentID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE moment SET stored = 0 WHERE id = ?`, id) })
}

// touch says that a moment is used now.
func (t momentTable) touch(ctx context.Context, id holt.MomentID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE moment SET used = ? WHERE id = ?`, time.Now().UnixNano(), id)
	})
}

// leave says of all moments of a computer that they are being deleted, with it.
func (t momentTable) leave(ctx context.Context, id holt.ComputerID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE moment SET state = 'deleting' WHERE computer = ?`, id) })
}

func (t momentTable) erase(ctx context.Context, id holt.MomentID) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM moment WHERE id = ?`, id) })
}

// forksOf returns the computers that were forked from a moment.
func (t momentTable) forksOf(ctx context.Context, id holt.MomentID) ([]holt.Dependent, error) {
	return t.forks(ctx, `parent_moment = ?`, id)
}

// forksOfComputer returns the computers that were forked from another.
func (t momentTable) forksOfComputer(ctx context.Context, id holt.ComputerID) ([]holt.Dependent, error) {
	return t.forks(ctx, `parent = ?`, id)
}

func (t momentTable) forks(ctx context.Context, where string, id any) (all []holt.Dependent, err error) {
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

// relatives are the moments that go with a computer, and its forks, which stay.
func (t momentTable) relatives(ctx context.Context, id holt.ComputerID) (out holt.DeletedComputer, err error) {
	all, err := t.list(ctx, `WHERE state = 'ready' AND computer = ? ORDER BY created, id`, id)
	if err != nil {
		return out, err
	}
	for _, m := range all {
		out.Moments = append(out.Moments, holt.NamedMoment{ID: m.ID, Name: m.Name})
	}
	out.Forks, err = t.forksOfComputer(ctx, id)
	return out, err
}
