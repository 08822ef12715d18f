package computer

import (
	"cmp"
	"context"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

func idleMS(t holt.IdleTimeout) int64 {
	if t.Never() {
		return -1
	}
	return time.Duration(t.Or(holt.DefaultIdleTimeout)).Milliseconds()
}

// idleTable writes the columns of table computer about use and wake-ups, which nothing else writes,
// and the table hold.
type idleTable struct{ d *db.DB }

func (t idleTable) exec(ctx context.Context, sql string, args ...any) (changed int, err error) {
	err = write(ctx, t.d, func(tx *db.Tx) error {
		err := tx.Exec(sql, args...)
		changed = tx.Changes()
		return err
	})
	return changed, err
}

// setTimeout changes when a computer is paused for being idle.
func (t idleTable) setTimeout(ctx context.Context, id holt.ComputerID, timeout holt.IdleTimeout) error {
	_, err := t.exec(ctx, `UPDATE computer SET idle_ms = ?2 WHERE id = ?1`, id, idleMS(timeout))
	return err
}

// used writes down when a computer was last in use.
func (t idleTable) used(ctx context.Context, id holt.ComputerID, at time.Time) error {
	_, err := t.exec(ctx, `UPDATE computer SET used = ?2 WHERE id = ?1`, id, at.UnixNano())
	return err
}

// pausing records who is about to pause a computer.
func (t idleTable) pausing(ctx context.Context, id holt.ComputerID, by string) error {
	_, err := t.exec(ctx, `UPDATE computer SET paused_by = ?2 WHERE id = ?1`, id, by)
	return err
}

// woken records what woke a computer, unless that of its last start is on record.
func (t idleTable) woken(ctx context.Context, id holt.ComputerID, began, now time.Time, use holt.Use) error {
	by := string(use.Kind)
	if use.Detail != "" {
		by += ": " + clip(use.Detail)
	}
	_, err := t.exec(ctx, `UPDATE computer SET woken_by = ?2, woken = ?3, wake_ms = ?4 WHERE id = ?1 AND woken < started`,
		id, by, now.UnixNano(), now.Sub(began).Milliseconds())
	return err
}

// holds returns the holds of a computer that have not expired, oldest first.
func (t idleTable) holds(ctx context.Context, id holt.ComputerID, now time.Time) ([]holt.Hold, error) {
	list := []holt.Hold{}
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, computer, reason, by_whom, created, expires FROM hold WHERE computer = ?1 AND expires > ?2 ORDER BY created, id`,
			[]any{id, now.UnixNano()}, func(row *db.Row) error {
				list = append(list, holt.Hold{ID: holt.HoldID(row.Text(0)), ComputerID: holt.ComputerID(row.Text(1)), Reason: row.Text(2), By: row.Text(3),
					CreatedAt: time.Unix(0, row.Int64(4)).UTC(), ExpiresAt: time.Unix(0, row.Int64(5)).UTC()})
				return nil
			})
	})
	return list, err
}

// addHold adds a hold, unless the computer has most holds or is deleted.
func (t idleTable) addHold(ctx context.Context, h holt.Hold, most int, claim *idempotency.Claim) error {
	return writeSync(ctx, t.d, func(tx *db.Tx) error {
		if err := tx.Exec(`DELETE FROM hold WHERE expires <= ?`, h.CreatedAt.UnixNano()); err != nil {
			return err
		}
		var n int
		err := tx.Query(`SELECT count(*) FROM hold WHERE computer = ?`, []any{h.ComputerID}, func(row *db.Row) error {
			n = int(row.Int64(0))
			return nil
		})
		if err != nil {
			return err
		}
		if n >= most {
			return holt.Errorf(holt.TooMany, "too many holds: the computer has %d", n).WithHint("list them with holt computer holds, end one with holt computer release")
		}
		if _, there, err := textOf(tx, `SELECT id FROM computer WHERE id = ?`, h.ComputerID); err != nil || !there {
			return cmp.Or[error](err, holt.Errorf(holt.NotFound, "the computer has been deleted"))
		}
		if err := claim.Bind(tx, string(h.ID)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO hold (id, computer, reason, by_whom, created, expires) VALUES (?,?,?,?,?,?)`,
			h.ID, h.ComputerID, h.Reason, h.By, h.CreatedAt.UnixNano(), h.ExpiresAt.UnixNano())
	})
}

// dropHold removes a hold; false if there is none.
func (t idleTable) dropHold(ctx context.Context, computer holt.ComputerID, id holt.HoldID) (bool, error) {
	n, err := t.exec(ctx, `DELETE FROM hold WHERE id = ?1 AND computer = ?2`, id, computer)
	return n > 0, err
}
