package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"holt"
	"holt/db"
)

// runTable is the table run of the control database.
type runTable struct {
	d   *db.DB
	log *slog.Logger
}

const runColumns = `id, computer, spec, state, exit_code, signal, timed_out, background, started, ended`

func (t runTable) list(ctx context.Context, condition string, args ...any) ([]holt.Run, error) {
	list := []holt.Run{}
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+runColumns+` FROM run `+condition, args, func(row *db.Row) error {
			run, err := scanRun(row)
			list = append(list, run)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return list, nil
}

func scanRun(row *db.Row) (holt.Run, error) {
	run := holt.Run{
		ID: holt.RunID(row.Text(0)), ComputerID: holt.ComputerID(row.Text(1)), State: holt.RunState(row.Text(3)),
		ExitCode: int(row.Int64(4)), Signal: row.Text(5), TimedOut: row.Int64(6) != 0, Background: int(row.Int64(7)),
		StartedAt: time.Unix(0, row.Int64(8)).UTC(), EndedAt: timeOf(row.Int64(9)),
	}
	if err := json.Unmarshal(row.Bytes(2), &run.Spec); err != nil {
		return run, fmt.Errorf("decode run %s: %w", run.ID, err)
	}
	return run, nil
}

func (t runTable) insert(ctx context.Context, run holt.Run, claim *Claim) error {
	spec, err := json.Marshal(run.Spec)
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	return write(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(run.ID)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO run (id, computer, spec, state, started) VALUES (?, ?, ?, ?, ?)`,
			run.ID, run.ComputerID, string(spec), run.State, run.StartedAt.UnixNano())
	})
}

func (t runTable) forget(ctx context.Context, id holt.RunID) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM run WHERE id = ?`, id) })
}

func (t runTable) revive(ctx context.Context, id holt.RunID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET state = 'running', ended = 0 WHERE id = ?`, id)
	})
}

// get returns a run as it is on record.
func (t runTable) get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	list, err := t.list(ctx, `WHERE id = ?`, id)
	if err != nil {
		return holt.Run{}, err
	}
	if len(list) == 0 {
		return holt.Run{}, holt.Errorf(holt.NotFound, "there is no run %q", clip(string(id))).
			WithHint("holt run list shows the runs of a computer; they go when it is deleted")
	}
	return list[0], nil
}

// exited writes down how a run ended, as the guest tells it.
func (t runTable) exited(run holt.Run) {
	if run.State != holt.RunExited {
		return
	}
	now := time.Now()
	ended := now
	if run.EndedAt != nil && run.EndedAt.Before(now) {
		ended = *run.EndedAt
	}
	err := write(context.Background(), t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET state = 'exited', exit_code = ?2, signal = ?3, timed_out = ?4, background = ?5,
			ended = max(started, ?6) WHERE id = ?1 AND state = 'running'`,
			run.ID, run.ExitCode&0xff, clip(run.Signal), run.TimedOut, max(0, run.Background), ended.UnixNano())
	})
	if err != nil {
		t.log.Error("record end of run", "run", run.ID, "err", err)
	}
}

// lose marks running runs as lost.
func (t runTable) lose(ctx context.Context, condition string, args ...any) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET state = 'lost', ended = ?1 WHERE state = 'running' AND `+condition,
			append([]any{time.Now().UnixNano()}, args...)...)
	})
}

// loseAll marks the runs of a machine that has ended.
func (t runTable) loseAll(ctx context.Context, id holt.ComputerID) error {
	return t.lose(ctx, `computer = ?2`, id)
}
