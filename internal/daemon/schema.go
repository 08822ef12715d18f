package daemon

import (
	"context"
	"fmt"
	"path/filepath"

	"holt/internal/control"
	"holt/internal/hosterror"
	"holt/internal/store/db"
	"holt/internal/workspaces"
)

// controlFile is the control database's name in the data directory.
const controlFile = "holt.db"

const (
	// reserveBytes is the room that the control database reserves for itself.
	reserveBytes = 6 << 20 // the kept events may take two of these
	// reservePages makes SQLite checkpoint its log well before the reserve is used up.
	reservePages = 256
)

func (d *Daemon) openControl(ctx context.Context) (err error) {
	if d.db, err = db.Open(filepath.Join(d.cfg.DataDir, controlFile), control.Schema, ""); err != nil {
		return fmt.Errorf("open control database: %w", err)
	}
	d.onClose(d.db.Close)
	return reserve(ctx, d.db)
}

// reserve makes room in the control database, so that runs and deletes can still
// be recorded when the host's disk is full: SQLite uses its free pages, and the
// space of its log, before it asks for more.
func reserve(ctx context.Context, d *db.DB) error {
	err := d.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Query(fmt.Sprintf(`PRAGMA wal_autocheckpoint = %d`, reservePages), nil, func(*db.Row) error { return nil }); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO reserve VALUES (zeroblob(?))`, reserveBytes)
	})
	full := hosterror.IsFull(err) // the room reserved by an earlier daemon has to suffice
	if err == nil {
		err = d.Write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM reserve`) })
	}
	if err != nil && !full {
		return fmt.Errorf("make room in control database: %w", err)
	}
	return nil
}

// MountsOf returns the directories that the next daemon of a data directory
// mounts workspaces on. No daemon serves the directory now. It changes nothing.
func MountsOf(dataDir string) (dirs []string, err error) {
	err = db.ReadFile(filepath.Join(dataDir, controlFile), func(tx *db.Tx) error {
		dirs, err = workspaces.MountDirs(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read host mounts: %w", err)
	}
	return dirs, nil
}
