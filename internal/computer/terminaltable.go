package computer

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// The most terminals of a computer on record: a guest can tell of any number.
const (
	keptTerminals = 200 // ended ones
	openTerminals = 200 // running ones
)

// terminalTable is the table terminal of the control database.
type terminalTable struct {
	d *db.DB
}

// terminalColumns are the columns of a terminal: those that are written when it starts, and the rest.
func terminalColumns(t *holt.Terminal) (started, ended []column) {
	return []column{
		text("computer", &t.ComputerID), text("id", &t.ID), text("name", &t.Name), encoded("spec", &t.Spec), text("state", &t.State),
		number("rows", &t.Size.Rows), number("cols", &t.Size.Cols), stamp("started", &t.StartedAt),
	}, []column{number("exit_code", &t.ExitCode), text("signal", &t.Signal), maybeStamp("ended", &t.EndedAt)}
}

// list returns the terminals that a condition selects.
func (t terminalTable) list(ctx context.Context, condition string, args ...any) ([]holt.Terminal, error) {
	list := []holt.Terminal{}
	columns := func(t *holt.Terminal) []column {
		started, ended := terminalColumns(t)
		return append(started, ended...)
	}
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return selectRows(tx, "terminal", condition, args, columns, func(t *holt.Terminal) error { list = append(list, *t); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read terminals: %w", err)
	}
	return list, nil
}

// of returns the terminals of a computer, newest first.
func (t terminalTable) of(ctx context.Context, id holt.ComputerID) ([]holt.Terminal, error) {
	return t.list(ctx, `WHERE computer = ? ORDER BY seq DESC LIMIT ?`, id, keptTerminals+openTerminals)
}

// open reports whether a computer has a running terminal.
func (t terminalTable) open(ctx context.Context, id holt.ComputerID) (bool, error) {
	all, err := t.list(ctx, `WHERE computer = ? AND state = ? LIMIT 1`, id, holt.TerminalRunning)
	return len(all) > 0, err
}

// insert records a terminal, unless it is on record.
func (t terminalTable) insert(ctx context.Context, one holt.Terminal, claim *idempotency.Claim) error {
	one.Spec.Env = nil // it may hold secrets, and only the guest needs it
	return write(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(one.ID)); err != nil {
			return err
		}
		started, _ := terminalColumns(&one)
		return insertRow(tx, "OR IGNORE", "terminal", started)
	})
}

func (t terminalTable) forget(ctx context.Context, computer holt.ComputerID, id holt.TerminalID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`DELETE FROM terminal WHERE computer = ? AND id = ?`, computer, id)
	})
}

// exited records how a terminal ended, as the guest reports it, and prunes.
func (t terminalTable) exited(ctx context.Context, one holt.Terminal) error {
	now := time.Now()
	ended := now
	if one.EndedAt != nil && one.EndedAt.Before(now) {
		ended = *one.EndedAt
	}
	return write(ctx, t.d, func(tx *db.Tx) error {
		err := tx.Exec(`UPDATE terminal SET state = 'exited', exit_code = ?3, signal = ?4, rows = ?5, cols = ?6, ended = max(started, ?7)
			WHERE computer = ?1 AND id = ?2 AND state = 'running'`,
			one.ComputerID, one.ID, one.ExitCode&0xff, clip(one.Signal), one.Size.Rows, one.Size.Cols, ended.UnixNano())
		if err != nil {
			return err
		}
		return t.prune(tx, one.ComputerID)
	})
}

// prune removes the records of the oldest ended terminals of a computer.
func (t terminalTable) prune(tx *db.Tx, computer holt.ComputerID) error {
	return tx.Exec(`DELETE FROM terminal WHERE computer = ?1 AND state <> 'running' AND seq NOT IN (
		SELECT seq FROM terminal WHERE computer = ?1 AND state <> 'running' ORDER BY ended DESC, seq DESC LIMIT ?2)`, computer, keptTerminals)
}

// revive marks a terminal as running: its computer was restored to a snapshot at which it was.
func (t terminalTable) revive(ctx context.Context, computer holt.ComputerID, id holt.TerminalID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE terminal SET state = 'running', ended = 0, exit_code = 0, signal = '' WHERE computer = ? AND id = ?`, computer, id)
	})
}

// lose marks a running terminal as lost, if the guest, which was asked, does not have it, and
// prunes.
func (t terminalTable) lose(ctx context.Context, computer holt.ComputerID, asked *question[holt.TerminalID], id holt.TerminalID) (lost bool, err error) {
	err = write(ctx, t.d, func(tx *db.Tx) error {
		if lost = asked.lost(id); !lost {
			return nil
		}
		return t.end(tx, computer, id)
	})
	return lost, err
}

// unlose marks a lost terminal that is being opened as running.
func (t terminalTable) unlose(ctx context.Context, computer holt.ComputerID, id holt.TerminalID) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE terminal SET state = 'running', ended = 0 WHERE computer = ? AND id = ? AND state = 'lost'`, computer, id)
	})
}

func (t terminalTable) loseAll(ctx context.Context, computer holt.ComputerID) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return t.end(tx, computer, "") })
}

// end marks a running terminal as lost; with id "" all of a computer.
func (t terminalTable) end(tx *db.Tx, computer holt.ComputerID, id holt.TerminalID) error {
	err := tx.Exec(`UPDATE terminal SET state = 'lost', ended = ?3 WHERE state = 'running' AND computer = ?1 AND (?2 = '' OR id = ?2)`,
		computer, id, time.Now().UnixNano())
	if err != nil {
		return err
	}
	return t.prune(tx, computer)
}
