package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// runTable is the table run of the control database.
type runTable struct {
	d    *db.DB
	log  *slog.Logger
	keep endedRuns
}

// endedRuns says which ended runs of a computer are kept.
type endedRuns struct {
	last  int           // this many, however old they are
	young time.Duration // and those that ended no longer ago than this
	most  int           // but no more than this
}

func keptRuns() endedRuns { return endedRuns{last: 1000, young: 24 * time.Hour, most: 10_000} }

// runColumns are the columns of a run: those that are written when it starts, and the rest.
func runColumns(r *holt.Run) (started, ended []column) {
	return []column{
			text("id", &r.ID), text("computer", &r.ComputerID), encoded("spec", &r.Spec), text("schedule", &r.Schedule), text("state", &r.State), stamp("started", &r.StartedAt),
		}, []column{
			number("exit_code", &r.ExitCode), text("signal", &r.Signal), boolean("timed_out", &r.TimedOut), number("background", &r.Background),
			maybeStamp("ended", &r.EndedAt), text("reason", &r.Reason), encoded("memory", &r.OutOfMemory),
		}
}

func (t runTable) list(ctx context.Context, condition string, args ...any) ([]holt.Run, error) {
	list := []holt.Run{}
	columns := func(r *holt.Run) []column { started, ended := runColumns(r); return append(started, ended...) }
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return selectRows(tx, "run", condition, args, columns, func(r *holt.Run) error { list = append(list, *r); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return list, nil
}

func (t runTable) insert(ctx context.Context, run holt.Run, claim *idempotency.Claim) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(run.ID)); err != nil {
			return err
		}
		started, _ := runColumns(&run)
		return insertRow(tx, "", "run", started)
	})
}

func (t runTable) forget(ctx context.Context, id holt.RunID) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM run WHERE id = ?`, id) })
}

// unlose marks a lost run as running; false if it was not lost.
func (t runTable) unlose(ctx context.Context, id holt.RunID) (was bool, err error) {
	err = write(ctx, t.d, func(tx *db.Tx) error {
		ids, err := runIDs(tx, reviveRun+`WHERE id = ? AND state = 'lost' RETURNING id`, id)
		was = len(ids) > 0
		return err
	})
	return was, err
}

const reviveRun = `UPDATE run SET state = 'running', ended = 0, exit_code = 0, signal = '', reason = '', memory = '', timed_out = 0, background = 0, output = 0, written = NULL `

// reviveHere marks those of some runs as running that have ended on record, if the computer was
// just restored to a snapshot at which they may have been running. It returns them, and running
// ones with saved output, which is newer than the guest's. At any other time the guest cannot
// revive a run.
func (t runTable) reviveHere(ctx context.Context, computer holt.ComputerID, ids []holt.RunID) (revived []holt.RunID, err error) {
	among, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	err = write(ctx, t.d, func(tx *db.Tx) error {
		at, err := wentBackTo(tx, computer)
		if err != nil || at.IsZero() {
			return err
		}
		revived, err = runIDs(tx, reviveRun+`WHERE computer = ?1 AND iif(state = 'running', output > 0, ended >= ?2) AND id IN (SELECT value FROM json_each(?3)) RETURNING id`,
			computer, at.Add(-endSlack).UnixNano(), string(among))
		if err != nil {
			return err
		}
		return wentBack(tx, computer, time.Time{})
	})
	return revived, err
}

// endSlack is the tolerance for the recorded end of a run, which depends on the guest's clock.
const endSlack = time.Minute

// get returns a run as it is on record.
func (t runTable) get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	list, err := t.list(ctx, `WHERE id = ?1 AND `+ofTenant(2), id, holt.Confined(ctx))
	if err != nil {
		return holt.Run{}, err
	}
	if len(list) == 0 {
		return holt.Run{}, holt.Errorf(holt.NotFound, "there is no run %q", clip(string(id))).
			WithHint("runs are removed with their computer, and a day after their end once %d newer ones have ended; the history of the workspace still has their changes", t.keep.last)
	}
	return list[0], nil
}

// exited records how a run ended, as the guest reports it, and returns the runs of the computer
// that are not kept any more.
func (t runTable) exited(id holt.ComputerID, run holt.Run) (gone []holt.RunID) {
	if run.State != holt.RunExited {
		return nil
	}
	now := time.Now()
	took := now.UnixNano() // longer than it can be
	if run.EndedAt != nil {
		took = min(took, max(0, int64(run.EndedAt.Sub(run.StartedAt)))) // both by the guest's clock
	}
	memory := ""
	if run.OutOfMemory != nil {
		b, err := json.Marshal(run.OutOfMemory)
		if err != nil {
			t.log.Error("encode end of run", "run", run.ID, "err", err)
		}
		memory = string(b)
	}
	err := write(context.Background(), t.d, func(tx *db.Tx) error {
		err := tx.Exec(`UPDATE run SET state = 'exited', exit_code = ?2, signal = ?3, timed_out = ?4, background = ?5, reason = ?8, memory = ?9,
			ended = max(started, min(started + ?6, ?7)) WHERE id = ?1 AND state = 'running'`,
			run.ID, run.ExitCode&0xff, clip(run.Signal), run.TimedOut, max(0, run.Background), took, now.UnixNano(), run.Reason, memory)
		if err == nil {
			gone, err = t.prune(tx, id, now)
		}
		return err
	})
	if err != nil {
		t.log.Error("record end of run", "run", run.ID, "err", err)
		return nil
	}
	return gone
}

// prune removes the oldest ended runs of a computer and returns them. Changes are attributed to a
// run only while it has a row, so runs that left processes are counted separately: many short runs
// do not remove them.
func (t runTable) prune(tx *db.Tx, id holt.ComputerID, now time.Time) (gone []holt.RunID, err error) {
	const (
		nth    = `coalesce((SELECT ended FROM run WHERE computer = ?1 AND state <> 'running' AND (background > 0) = ?2 ORDER BY ended DESC LIMIT 1 OFFSET %d - 1), 0)`
		remove = `DELETE FROM run WHERE computer = ?1 AND state <> 'running' AND (background > 0) = ?2 AND ended < max(min(?3, ` + nth + `), ` + nth + `) RETURNING id`
	)
	query := fmt.Sprintf(remove, t.keep.last, t.keep.most)
	for _, class := range []struct {
		left bool
		old  time.Time
	}{{false, now.Add(-t.keep.young)}, {true, time.Unix(0, 0)}} {
		err := tx.Query(query, []any{id, class.left, class.old.UnixNano()}, func(row *db.Row) error {
			gone = append(gone, holt.RunID(row.Text(0)))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("forget ended runs: %w", err)
		}
	}
	return gone, nil
}

// lose marks a running run as lost, if the guest, which was asked, does not have it.
func (t runTable) lose(ctx context.Context, asked *question[holt.RunID], id holt.RunID) (lost bool, err error) {
	err = write(ctx, t.d, func(tx *db.Tx) error {
		if lost = asked.lost(id); !lost {
			return nil
		}
		return loseRuns(tx, "", `id = ?3`, id)
	})
	return lost, err
}

func loseRuns(tx *db.Tx, why holt.RunReason, condition string, args ...any) error {
	return tx.Exec(`UPDATE run SET state = 'lost', ended = ?1, reason = ?2 WHERE state = 'running' AND `+condition,
		append([]any{time.Now().UnixNano(), why}, args...)...)
}

// loseAll marks the runs of an ended machine as lost.
func (t runTable) loseAll(ctx context.Context, id holt.ComputerID, why holt.RunReason) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		if err := wentBack(tx, id, time.Time{}); err != nil {
			return err
		}
		return loseRuns(tx, why, `computer = ?3`, id)
	})
}
