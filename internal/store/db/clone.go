package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Clone writes the database to a new file at path as it is now or a little
// later, beside writers: one of the states that it had during the call. It
// shares blocks where the file system can (FICLONE), and else copies bytes,
// which costs a fifth of what [DB.Copy] does. What is at path has a log of its
// own, path-wal, and is not synced; [DB.Sync] of it does that.
//
// How this can be right with the files alone: the reader that is open all the
// while keeps the log from being begun anew, so that each page which a
// checkpoint writes meanwhile, and which may be torn in the copy, is whole in
// the log, which is copied after the database and without a commit in between.
// Or all of the log was in the database already: then that reader keeps
// checkpoints away altogether, and the log only adds to what was copied.
func (d *DB) Clone(ctx context.Context, path string) error {
	err := d.ReadNow(ctx, func(tx *Tx) error { // segments are held, and a machine may stand still
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

// cloneFile makes a file with the bytes of src.
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
		if err != nil && off == 0 { // not every file system can
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

// Sync makes the database as it is survive power loss, with its log.
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

// syncLog makes what was committed survive power loss.
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
