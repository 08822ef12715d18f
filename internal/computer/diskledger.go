package computer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holt"
	"holt/internal/image"
	"holt/internal/store/db"
)

// DiskLedger say of root disks which others they may lie over, as it was written down when they were made. What a disk says
// itself its guest may have written, if it has taken over what runs it.
type DiskLedger struct {
	DB     *db.DB // with [Schema]
	Disks  string // see [Config]
	Images interface {
		Disks(digest string) (snapshots, roots []string)
	}
}

// Beneath returns the disks that one may lie over, each over some of the next. NotFound of one that nobody has written down.
func (b DiskLedger) Beneath(ctx context.Context, disk string) (all []string, err error) {
	if !sameDir(filepath.Dir(disk), b.Disks) {
		return b.template(disk), nil
	}
	image := ""
	id := strings.TrimSuffix(filepath.Base(disk), ".qcow2")
	err = read(ctx, b.DB, func(tx *db.Tx) error {
		return tx.Query(`WITH RECURSIVE chain(id, depth) AS (SELECT ?, 0 UNION SELECT parent, depth + 1 FROM disk JOIN chain USING (id))
			SELECT id, image FROM disk JOIN chain USING (id) ORDER BY depth`, []any{id}, func(row *db.Row) error {
			all, image = append(all, filepath.Join(b.Disks, row.Text(0)+".qcow2")), row.Text(1)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read root disks: %w", err)
	}
	if len(all) == 0 {
		return nil, holt.Errorf(holt.NotFound, "no root disk %s is written down", id)
	}
	snapshots, roots := b.Images.Disks(image)
	return append(append(all[1:], snapshots...), roots...), nil
}

// template is Beneath of the disk, or the next, of a machine that becomes a template's snapshot.
func (b DiskLedger) template(disk string) []string {
	_, roots := b.Images.Disks("")
	return append([]string{filepath.Join(filepath.Dir(disk), image.SnapshotDisk)}, roots...)
}

// sameDir tells whether two paths, of which one may go by a symbolic link, name one directory.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}
