package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Clone writes a copy of the database to a new file at path while writers run.
// The copy is one of the states that the database had during the call. Blocks
// are shared if the file system supports it (FICLONE), otherwise bytes are
// copied, at a fifth of the cost of [DB.Copy]. The copy has its own log,
// path-wal. It is not synced; use [DB.Sync].
//
// The copy is consistent because a read transaction is open during the whole
// call, so that SQLite does not restart the log. A page that a checkpoint writes
// meanwhile may be torn in the copied database, but the log has it complete, and
// the log is copied afterwards with no commit in between. If all of the log was
// in the database already, the read transaction prevents checkpoints, and the
// log only adds to the copied state.
func (d *DB) Clone(ctx context.Context, path string) error {
	err := d.ReadNow(ctx, func(tx *Tx) error { // ReadNow: the caller holds segments and may have stopped a machine
		if err := tx.Query("SELECT 1 FROM sqlite_schema LIMIT 1", nil, func(*Row) error { return nil }); err != nil {
			return err
		}
		if err := cloneFile(ctx, d.file, path); err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.writer == nil {
			return errClosed
		}
		log, err := os.Open(d.path + "-wal") // SQLite takes no locks on it that closing would drop
		if err != nil {
			return err
		}
		return errors.Join(cloneFile(ctx, log, path+"-wal"), log.Close())
	})
	if err != nil {
		return fmt.Errorf("clone %s: %w", d.path, err)
	}
	return nil
}

// cloneFile creates a file with the bytes of src.
func cloneFile(ctx context.Context, src *os.File, path string) (err error) {
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	for off := int64(0); ; {
		n, err := unix.CopyFileRange(int(src.Fd()), &off, int(dst.Fd()), nil, 64<<20, 0)
		if err != nil && off == 0 { // the file system does not support FICLONE
			_, err := io.Copy(dst, io.NewSectionReader(src, 0, 1<<62))
			return err
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// Sync makes the current state, with its log, survive power loss.
func (d *DB) Sync() error {
	d.mu.Lock()
	made := d.commits
	d.mu.Unlock()
	// The log first: a checkpoint may move its pages to the database meanwhile.
	if err := d.syncLog(); err != nil {
		return err
	}
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.path, err)
	}
	d.mu.Lock()
	d.synced = max(d.synced, made)
	d.mu.Unlock()
	return nil
}

// syncLog makes all commits survive power loss.
func (d *DB) syncLog() error {
	log, err := os.OpenFile(d.path+"-wal", os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(log.Sync(), log.Close())
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", d.path, err)
	}
	return nil
}
