package computer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/hosterror"
	"holt/internal/store/db"
)

// stoodOn selects the disks that a computer, snapshot or restore uses directly.
const stoodOn = `SELECT disk FROM computer UNION SELECT disk FROM snapshot UNION SELECT next FROM snapshot UNION SELECT disk FROM restore UNION SELECT before FROM restore`

// neededDisks adds all disks beneath those.
const neededDisks = `
WITH RECURSIVE needed(id) AS (` + stoodOn + `
	UNION SELECT parent FROM disk JOIN needed USING (id))`

// disks is the ledger of the root disks: one row and one file each. A row is written before its
// file, in the transaction that makes the disk needed, and removed after it, so every file has a
// row. collect removes disks that nothing needs.
type disks struct {
	d       *db.DB
	dir     string
	archive *archive.Archive // has those that stored snapshots need
	log     *slog.Logger

	collecting sync.Mutex
	still      sync.Mutex // held while frozen disks are read for the archive, or merged
}

// path is the file of a disk.
func (k *disks) path(id holt.DiskID) string { return filepath.Join(k.dir, string(id)+".qcow2") }

// insert adds the row of a disk of a computer over parent, or over the image if that is "".
func (k *disks) insert(tx *db.Tx, id, parent holt.DiskID, r *record) error {
	return tx.Exec(`INSERT INTO disk (id, parent, image, engine, created, space) VALUES (?1, ?2, ?3, ?4, ?5, ?1)`, id, parent, r.image, family(r.Engine), time.Now().UnixNano())
}

// collect removes the disks that no computer or snapshot needs, directly or beneath another disk.
// It returns how many bytes that freed. It continues after a disk that cannot be removed.
func (k *disks) collect(ctx context.Context) (freed int64, err error) {
	k.collecting.Lock()
	defer k.collecting.Unlock()
	unneeded, err := k.layers(ctx, neededDisks+` SELECT id, space, engine FROM disk WHERE id NOT IN (SELECT id FROM needed)`)
	if err != nil {
		return 0, err
	}
	var stay []error
	for _, l := range unneeded {
		bytes := archive.Allocated(k.path(l.id))
		if err := os.Remove(k.path(l.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			stay = append(stay, fmt.Errorf("remove root disk: %w", err))
			continue
		}
		freed += bytes
		k.archive.TryDrop(ctx, string(l.space))
		if err := writeSync(ctx, k.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM disk WHERE id = ?`, l.id) }); err != nil {
			return freed, err
		}
	}
	return freed, errors.Join(stay...)
}

// layer is one disk of a chain.
type layer struct {
	id     holt.DiskID
	space  holt.DiskID // its name in the archive
	engine string      // the family of engines that reads it
}

// chain returns a disk and all beneath it, without the image; none for "".
func (k *disks) chain(ctx context.Context, id holt.DiskID) ([]layer, error) {
	return k.layers(ctx, `WITH RECURSIVE chain(id, depth) AS (SELECT ?, 0 UNION ALL SELECT parent, depth + 1 FROM disk JOIN chain USING (id))
		SELECT id, space, engine FROM disk JOIN chain USING (id) ORDER BY depth`, id)
}

// The files in the space of a disk.
const (
	diskFile = "disk"
	baseFile = "base" // what it is laid over, if that is the disk of a template's snapshot: no other host has the same
)

// store archives a frozen disk, unless it is archived, and returns by how many bytes packs grew.
// base is the path of its [baseFile], or "".
func (k *disks) store(ctx context.Context, l layer, base, image string) (grown int64, err error) {
	a := archive.About{Disk: l.space, Image: image}
	for _, one := range []struct{ name, path string }{{baseFile, base}, {diskFile, k.path(l.id)}} {
		if one.path == "" {
			continue
		}
		f, n, err := k.archive.Put(ctx, string(l.space), one.path, one.name)
		a.Files, grown = append(a.Files, f), grown+n
		if err != nil {
			return grown, err
		}
	}
	err = k.archive.Finished(ctx, string(l.space))
	if archive.Incomplete(err) {
		err = k.archive.Finish(ctx, string(l.space), a)
	}
	return grown, err
}

// dropLeft drops disks from the archive that no archived snapshot needs any more.
func (k *disks) dropLeft(ctx context.Context) error {
	left, err := k.list(ctx, `SELECT space FROM disk_left WHERE NOT EXISTS (SELECT 1 FROM snapshot WHERE `+outdated+`)`)
	for i := 0; i < len(left) && err == nil; i++ {
		if err = k.archive.Drop(ctx, string(left[i])); err == nil {
			err = write(ctx, k.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM disk_left WHERE space = ?`, left[i]) })
		}
	}
	return err
}

func (k *disks) layers(ctx context.Context, sql string, args ...any) (all []layer, err error) {
	err = read(ctx, k.d, func(tx *db.Tx) error {
		return tx.Query(sql, args, func(row *db.Row) error {
			all = append(all, layer{holt.DiskID(row.Text(0)), holt.DiskID(row.Text(1)), row.Text(2)})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read root disks: %w", err)
	}
	return all, nil
}

func (k *disks) list(ctx context.Context, sql string, args ...any) (ids []holt.DiskID, err error) {
	err = read(ctx, k.d, func(tx *db.Tx) error {
		return tx.Query(sql, args, func(row *db.Row) error {
			ids = append(ids, holt.DiskID(row.Text(0)))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read root disks: %w", err)
	}
	return ids, nil
}

// tidy removes unused disks and files without a row, which a crash may leave. It is called before
// anything uses the disks.
func (k *disks) tidy(ctx context.Context) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return hosterror.Full(fmt.Errorf("make directory of root disks: %w", err))
	}
	if _, err := k.collect(ctx); err != nil {
		k.log.ErrorContext(ctx, "remove unused root disks", "err", err)
	}
	known, err := k.list(ctx, `SELECT id FROM disk`)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, id := range known {
		has[filepath.Base(k.path(id))] = true
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("read directory of root disks: %w", err)
	}
	for _, e := range entries {
		if !has[e.Name()] {
			if err := os.RemoveAll(filepath.Join(k.dir, e.Name())); err != nil {
				k.log.ErrorContext(ctx, "remove file that is no root disk on record", "file", e.Name(), "err", err)
			}
		}
	}
	return ctx.Err()
}
