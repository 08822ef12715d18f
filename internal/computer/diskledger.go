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

// DiskLedger answers from the records which disks a root disk may lie over. The headers of disk
// files are not trusted: a guest that has compromised its QEMU can rewrite them.
type DiskLedger struct {
	DB     *db.DB // with [Schema]
	Disks  string // see [Config]
	Images interface {
		Disks(digest string) (snapshots, roots []string)
	}
}

// Beneath returns the disks beneath a disk, from the top down, and those of its image. Error:
// NotFound.
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
		return nil, holt.Errorf(holt.NotFound, "there is no root disk %s on record", id)
	}
	snapshots, roots := b.Images.Disks(image)
	return append(append(all[1:], snapshots...), roots...), nil
}

// template is Beneath for the disk of a machine that is being made a template snapshot.
func (b DiskLedger) template(disk string) []string {
	_, roots := b.Images.Disks("")
	return append([]string{filepath.Join(filepath.Dir(disk), image.SnapshotDisk)}, roots...)
}

// sameDir reports whether two paths name one directory, also through symbolic links.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}
