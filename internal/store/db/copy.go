package db

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
)

// Copy writes one state of the database to a new file at path, page by page,
// while writers run. Unchanged pages have the same bytes at the same offset as
// in an earlier copy. The copy is not synced.
func (d *DB) Copy(path string) (err error) {
	src, err := d.Reader()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return fmt.Errorf("copy %s: %w", d.path, err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	b, err := sqlite.NewBackup(dst, "", src, "")
	if err == nil {
		defer b.Close()
		_, err = b.Step(-1)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", d.path, err)
	}
	return nil
}
