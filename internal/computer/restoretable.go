package computer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// wentBack records, as part of a transaction, that a computer was restored to a snapshot of that
// time, so that its runs must be compared with those of the guest; the zero time: they need not.
func wentBack(tx *db.Tx, id holt.ComputerID, at time.Time) error {
	ns := int64(0)
	if !at.IsZero() {
		ns = at.UnixNano()
	}
	return tx.Exec(`UPDATE computer SET back_to = ?2 WHERE id = ?1 AND back_to <> ?2`, id, ns)
}

func wentBackTo(tx *db.Tx, id holt.ComputerID) (at time.Time, err error) {
	err = tx.Query(`SELECT back_to FROM computer WHERE id = ? AND back_to <> 0`, []any{id}, func(row *db.Row) error {
		at = time.Unix(0, row.Int64(0))
		return nil
	})
	return at, err
}

// restoreRow is a restore in progress.
type restoreRow struct {
	computer          holt.ComputerID
	snapshot, present holt.SnapshotID
	workspace         holt.WorkspaceID
	disk              holt.DiskID
	ran               bool
	claim             *idempotency.Claim
}

// insert records it, and replaces one that could not be removed.
func (w restoreRow) insert(tx *db.Tx) error {
	return tx.Exec(`INSERT OR REPLACE INTO restore (computer, snapshot, present, workspace, disk, ran, call) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		w.computer, w.snapshot, w.present, w.workspace, w.disk, w.ran, w.claim.Key())
}

// keepDisk keeps the computer's former disk until the restore is over.
func (w restoreRow) keepDisk(tx *db.Tx, before holt.DiskID) error {
	return tx.Exec(`UPDATE restore SET before = ? WHERE computer = ?`, before, w.computer)
}

func eraseRestore(ctx context.Context, d *db.DB, id holt.ComputerID) error {
	return writeSync(ctx, d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM restore WHERE computer = ?`, id) })
}

// halfRestored returns the restores that a daemon before this one began.
func halfRestored(ctx context.Context, d *db.DB) (all []restoreRow, err error) {
	err = read(ctx, d, func(tx *db.Tx) error {
		return tx.Query(`SELECT computer, snapshot, present, workspace, disk, ran, call FROM restore`, nil, func(row *db.Row) error {
			w := restoreRow{
				computer: holt.ComputerID(row.Text(0)), snapshot: holt.SnapshotID(row.Text(1)), present: holt.SnapshotID(row.Text(2)),
				workspace: holt.WorkspaceID(row.Text(3)), disk: holt.DiskID(row.Text(4)), ran: row.Int64(5) != 0,
			}
			if call := row.Text(6); call != "" {
				w.claim = idempotency.ClaimOf(call)
			}
			all = append(all, w)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read restores: %w", err)
	}
	return all, nil
}

// settleRestores finishes or forgets those restores. The next daemon retries a failure.
func (s *restorer) settleRestores(ctx context.Context) error {
	all, err := halfRestored(ctx, s.cfg.DB)
	if err != nil {
		return err
	}
	for _, row := range all {
		r, err := s.table.find(ctx, string(row.computer))
		if err == nil {
			err = s.settleRestore(ctx, &r, row)
		}
		if err != nil {
			s.log.ErrorContext(ctx, "recover restore", "computer", row.computer, "snapshot", row.snapshot, "err", err)
		}
	}
	return ctx.Err()
}

// settleRestore settles one restore. What was made for a forgotten one is gone: the registry
// removed the workspace when it was opened, and the disk goes with the record.
//
//   - The computer was running and is paused at the snapshot of the state before: the restore
//
// continues.
//   - It is paused at the target, and the swap is done: it is resumed.
//   - Otherwise it is as it was, or was resumed and only the record could not be removed.
func (s *restorer) settleRestore(ctx context.Context, r *record, row restoreRow) error {
	swapped := r.workspaceID == row.workspace
	b := &restoring{transition: transition{s: s.Store, r: r}, row: row}
	if err := present(s.cfg.engine(*r)); err != nil {
		return err // a daemon that has it continues
	}
	if r.State == holt.ComputerPaused && (swapped && r.snapshot == row.snapshot || !swapped && row.ran && r.snapshot == row.present) {
		return b.goOnLater(ctx, swapped)
	}
	if row.ran && r.State == holt.ComputerRunning && !swapped && r.snapshot == row.present { // undone but for this
		present, err := s.snapshots.get(ctx, row.present)
		if err == nil {
			err = s.takeBack(ctx, r, present)
		}
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			return err
		}
	}
	return b.forget(ctx)
}

// goOnLater continues a restore in the background.
func (b *restoring) goOnLater(ctx context.Context, swapped bool) error {
	from, err := b.s.snapshots.get(ctx, b.row.snapshot)
	if err != nil {
		return err
	}
	unlock, err := b.s.machines.lock(ctx, b.r.ID)
	if err != nil {
		return err
	}
	_, leave, err := b.s.shutdown.enter(ctx)
	if err != nil {
		unlock()
		return err
	}
	b.from = &from
	go func() {
		defer leave()
		defer unlock()
		ctx := b.s.shutdown.ctx
		act := b.finish
		if swapped {
			act = b.finishSwapped
		}
		if err := act(ctx); err != nil && ctx.Err() == nil {
			b.s.log.ErrorContext(ctx, "finish restore", "computer", b.r.ID, "snapshot", b.row.snapshot, "err", err)
		}
	}()
	return nil
}

// finish does the rest of a restore whose computer is paused at the snapshot of the state before.
func (b *restoring) finish(ctx context.Context) error {
	if err := os.Remove(b.s.disks.path(b.row.disk)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove root disk: %w", err)
	}
	present, err := b.s.snapshots.get(ctx, b.row.present)
	if err != nil {
		return err
	}
	b.name = present.Name
	begun := step{"row", nothing, b.forget}
	if err := b.forward(ctx, "restore", append([]step{begun}, b.steps()[1:]...)); err != nil {
		return err
	}
	b.tidy(ctx)
	return nil
}

// finishSwapped resumes a restored computer. If that fails it stays paused there.
func (b *restoring) finishSwapped(ctx context.Context) error {
	_, err := b.s.pauser.resumeLocked(ctx, b.r)
	if ctx.Err() != nil {
		return ending() // the next daemon continues
	}
	return errors.Join(err, b.forget(ctx))
}
