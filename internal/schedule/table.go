package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Schema makes the tables of this package in the control database. Times are
// nanoseconds since 1970; 0 means never.
const Schema = `
CREATE TABLE schedule (
	id         TEXT PRIMARY KEY,
	computer   TEXT NOT NULL,
	name       TEXT NOT NULL,
	cron       TEXT NOT NULL,
	zone       TEXT NOT NULL,
	missed     TEXT NOT NULL,
	overlap    TEXT NOT NULL,
	keep_awake INTEGER NOT NULL,
	enabled    INTEGER NOT NULL,
	spec       TEXT NOT NULL,    -- JSON of holt.RunSpec, with env
	created    INTEGER NOT NULL,
	after      INTEGER NOT NULL, -- what became of all due times up to this one is in firing
	next       INTEGER NOT NULL  -- the first due time after that; 0: none
) WITHOUT ROWID;
CREATE UNIQUE INDEX schedule_name ON schedule (computer, name);
CREATE INDEX schedule_next ON schedule (next) WHERE enabled AND next > 0;
CREATE TABLE firing (
	seq       INTEGER PRIMARY KEY,        -- order of firing
	schedule  TEXT NOT NULL,
	computer  TEXT NOT NULL,
	due       INTEGER NOT NULL,
	until     INTEGER NOT NULL DEFAULT 0, -- the last of count due times
	count     INTEGER NOT NULL DEFAULT 1,
	state     TEXT NOT NULL,
	reason    TEXT NOT NULL DEFAULT '',
	manual    INTEGER NOT NULL DEFAULT 0,
	replaces  INTEGER NOT NULL DEFAULT 0, -- it ends the run before it
	run       TEXT NOT NULL DEFAULT '',   -- the id that its run has, or is to have
	was       TEXT NOT NULL DEFAULT '',   -- state in which the computer was woken, until it is so again
	exit_code INTEGER NOT NULL DEFAULT 0,
	timed_out INTEGER NOT NULL DEFAULT 0,
	started   INTEGER NOT NULL DEFAULT 0,
	ended     INTEGER NOT NULL DEFAULT 0,
	refused   INTEGER NOT NULL DEFAULT 0  -- since when there is no room for its computer; 0: there is
);
CREATE INDEX firing_schedule ON firing (schedule, seq);
CREATE INDEX firing_open ON firing (schedule) WHERE state IN ('queued', 'starting', 'running');
CREATE INDEX firing_was ON firing (computer) WHERE was <> '';
`

// isOpen selects the firings that have not ended.
const isOpen = `state IN ('queued', 'starting', 'running')`

// record is a row of the table schedule.
type record struct {
	holt.Schedule // Spec with its environment
	after         time.Time
	next          time.Time // zero: never
	broken        error     // why its command cannot be read
}

const recordColumns = `id, computer, name, cron, zone, missed, overlap, keep_awake, enabled, spec, created, after, next`

func scanRecord(row *db.Row) record {
	r := record{Schedule: holt.Schedule{
		ID: holt.ScheduleID(row.Text(0)), ComputerID: holt.ComputerID(row.Text(1)), Name: row.Text(2), Cron: row.Text(3), TimeZone: row.Text(4),
		Missed: holt.MissedPolicy(row.Text(5)), Overlap: holt.OverlapPolicy(row.Text(6)), KeepAwake: row.Int64(7) != 0, Enabled: row.Int64(8) != 0,
		CreatedAt: timeOf(row.Int64(10)),
	}, after: timeOf(row.Int64(11)), next: timeOf(row.Int64(12))}
	if err := json.Unmarshal(row.Bytes(9), &r.Spec); err != nil {
		r.Spec, r.broken = holt.RunSpec{}, fmt.Errorf("decode command: %w", err)
	}
	return r
}

// invalid returns why a recorded schedule cannot run, such as a time zone that no longer exists; nil: it can.
func (r record) invalid() error {
	if r.broken != nil {
		return r.broken
	}
	_, err := Parse(r.Cron, r.TimeZone)
	return err
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// shown returns the schedule without the values of its environment.
func (r record) shown() holt.Schedule {
	s := r.Schedule
	for name := range s.Spec.Env {
		s.Variables = append(s.Variables, string(name))
	}
	slices.Sort(s.Variables)
	s.Spec = s.Spec.OnRecord()
	return s
}

// list returns the schedules that a condition selects.
func list(tx *db.Tx, condition string, args ...any) (all []record, err error) {
	err = tx.Query(`SELECT `+recordColumns+` FROM schedule `+condition, args, func(row *db.Row) error {
		all = append(all, scanRecord(row))
		return nil
	})
	return all, err
}

// times is list without the commands, which can be large.
func times(tx *db.Tx, condition string, args ...any) (all []record, err error) {
	err = tx.Query(`SELECT `+recordColumns+` FROM schedule `+condition, args, func(row *db.Row) error {
		r := scanRecord(row)
		r.Spec = holt.RunSpec{}
		all = append(all, r)
		return nil
	})
	return all, err
}

// byID returns a schedule, or false if there is none.
func byID(tx *db.Tx, id holt.ScheduleID) (record, bool, error) {
	all, err := list(tx, `WHERE id = ?`, id)
	if err != nil || len(all) == 0 {
		return record{}, false, err
	}
	return all[0], true, nil
}

// put inserts or replaces a schedule.
func put(tx *db.Tx, r record) error {
	taken := false
	err := tx.Query(`SELECT 1 FROM schedule WHERE computer = ? AND name = ? AND id <> ?`, []any{r.ComputerID, r.Name, r.ID}, func(*db.Row) error { taken = true; return nil })
	if err != nil {
		return err
	}
	if taken {
		return holt.Errorf(holt.AlreadyExists, "%s has a schedule %q already", cmp.Or(r.Computer, "the computer"), r.Name).WithHint("choose another name, or change that schedule: holt schedule update")
	}
	spec, err := json.Marshal(r.Spec)
	if err != nil {
		return fmt.Errorf("encode schedule: %w", err)
	}
	return tx.Exec(`INSERT OR REPLACE INTO schedule (`+recordColumns+`) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		r.ID, r.ComputerID, r.Name, r.Cron, r.TimeZone, r.Missed, r.Overlap, r.KeepAwake, r.Enabled, string(spec), nanos(r.CreatedAt), nanos(r.after), nanos(r.next))
}

// saveTimes writes the columns after and next of a schedule.
func saveTimes(tx *db.Tx, r record) error {
	return tx.Exec(`UPDATE schedule SET after = ?, next = ? WHERE id = ?`, nanos(r.after), nanos(r.next), r.ID)
}

// firing is a row of the table firing.
type firing struct {
	holt.Firing
	seq      int64
	computer holt.ComputerID
	replaces bool
	was      holt.ComputerState
	refused  time.Time // starting: since when the computer cannot be woken. Running: when requestThaw was called. Zero: neither
}

const firingColumns = `seq, schedule, computer, due, until, count, state, reason, manual, replaces, run, was, exit_code, timed_out, started, ended, refused`

func scanFiring(row *db.Row) firing {
	f := firing{Firing: holt.Firing{
		Schedule: holt.ScheduleID(row.Text(1)), Due: timeOf(row.Int64(3)), Until: timeAt(row.Int64(4)), Count: int(row.Int64(5)), State: holt.FiringState(row.Text(6)),
		Reason: row.Text(7), Manual: row.Int64(8) != 0, Run: holt.RunID(row.Text(10)), ExitCode: int(row.Int64(12)), TimedOut: row.Int64(13) != 0,
		StartedAt: timeAt(row.Int64(14)), EndedAt: timeAt(row.Int64(15)),
	}, seq: row.Int64(0), computer: holt.ComputerID(row.Text(2)), replaces: row.Int64(9) != 0, was: holt.ComputerState(row.Text(11)), refused: timeOf(row.Int64(16))}
	return f
}

// shown returns the firing without the id of a run that has not started.
func (f firing) shown() *holt.Firing {
	out := f.Firing
	if out.State == holt.FiringQueued || out.State == holt.FiringStarting || out.State == holt.FiringFailed {
		out.Run = ""
	}
	return &out
}

func timeAt(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := timeOf(ns)
	return &t
}

func nanosAt(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return nanos(*t)
}

// firings returns the firings that a condition selects.
func firings(tx *db.Tx, condition string, args ...any) (all []firing, err error) {
	err = tx.Query(`SELECT `+firingColumns+` FROM firing `+condition, args, func(row *db.Row) error {
		all = append(all, scanFiring(row))
		return nil
	})
	return all, err
}

// add inserts a firing and sets its seq.
func add(tx *db.Tx, f *firing) error {
	f.Count = max(1, f.Count)
	err := tx.Exec(`INSERT INTO firing (schedule, computer, due, until, count, state, reason, manual, replaces, run, was, exit_code, timed_out, started, ended) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		f.Schedule, f.computer, nanos(f.Due), nanosAt(f.Until), f.Count, f.State, f.Reason, f.Manual, f.replaces, f.Run, f.was, f.ExitCode, f.TimedOut, nanosAt(f.StartedAt), nanosAt(f.EndedAt))
	if err != nil {
		return err
	}
	return tx.Query(`SELECT last_insert_rowid()`, nil, func(row *db.Row) error { f.seq = row.Int64(0); return nil })
}

// save writes the columns of a firing that can change.
func save(tx *db.Tx, f firing) error {
	return tx.Exec(`UPDATE firing SET state=?2, reason=?3, run=?4, was=?5, exit_code=?6, timed_out=?7, started=?8, ended=?9, refused=?10 WHERE seq=?1`,
		f.seq, f.State, f.Reason, f.Run, f.was, f.ExitCode, f.TimedOut, nanosAt(f.StartedAt), nanosAt(f.EndedAt), nanos(f.refused))
}

// keptFirings is the number of ended firings of a schedule that are kept.
const keptFirings = 200

// prune deletes the oldest ended firings, except those whose computer must still be paused or stopped.
func prune(tx *db.Tx, id holt.ScheduleID) error {
	return tx.Exec(`DELETE FROM firing WHERE schedule = ?1 AND was = '' AND NOT `+isOpen+` AND seq <=
		(SELECT seq FROM firing WHERE schedule = ?1 AND NOT `+isOpen+` ORDER BY seq DESC LIMIT 1 OFFSET ?2)`, id, keptFirings)
}

// Belongings gives package computer the schedules of a computer.
type Belongings struct{ DB *db.DB }

// Of returns the names of a computer's schedules.
func (b Belongings) Of(ctx context.Context, computer holt.ComputerID) (names []string, err error) {
	err = b.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT name FROM schedule WHERE computer = ? ORDER BY name`, []any{computer}, func(row *db.Row) error {
			names = append(names, row.Text(0))
			return nil
		})
	})
	return names, err
}

// Forget deletes a computer's schedules in the transaction that deletes the computer.
func (Belongings) Forget(tx *db.Tx, computer holt.ComputerID) error {
	if err := tx.Exec(`DELETE FROM firing WHERE computer = ?`, computer); err != nil {
		return err
	}
	return tx.Exec(`DELETE FROM schedule WHERE computer = ?`, computer)
}
