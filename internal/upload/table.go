package upload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Schema makes the table of this package in the control database. Times are nanoseconds since 1970.
const Schema = `
CREATE TABLE upload (
	id      TEXT PRIMARY KEY,
	tenant  TEXT NOT NULL,
	spec    TEXT NOT NULL,            -- JSON of holt.UploadSpec
	created INTEGER NOT NULL,
	touched INTEGER NOT NULL,         -- when something was added last
	sha256  TEXT NOT NULL DEFAULT '', -- of what was written
	file    TEXT NOT NULL DEFAULT '', -- JSON of holt.FileInfo once it is done
	sure    INTEGER NOT NULL DEFAULT -1 -- offset of a piece with a checksum while it is received; else -1
) WITHOUT ROWID;
`

// record is a row of the table upload.
type record struct {
	holt.Upload // State and Offset of an open upload are computed, see Store.current
	tenant      string
	touched     time.Time
	sure        int64 // offset of the upload while a piece with a checksum is received; else unsure
}

// unsure is the value of sure if the file's length is the offset.
const unsure = -1

type table struct{ d *db.DB }

func (t table) list(ctx context.Context, condition string, args ...any) (list []record, err error) {
	err = t.d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, tenant, spec, created, touched, sha256, file, sure FROM upload `+condition, args, func(r *db.Row) error {
			one := record{tenant: r.Text(1), touched: time.Unix(0, r.Int64(4)).UTC(), sure: r.Int64(7)}
			one.ID, one.CreatedAt, one.ExpiresAt, one.State = holt.UploadID(r.Text(0)), time.Unix(0, r.Int64(3)).UTC(), one.touched.Add(holt.UploadKept), holt.UploadOpen
			err := json.Unmarshal([]byte(r.Text(2)), &one.Spec)
			if file := r.Text(6); file != "" && err == nil {
				one.State, one.Offset, one.SHA256 = holt.UploadDone, one.Spec.Size, r.Text(5)
				err = json.Unmarshal([]byte(file), &one.File)
			}
			list = append(list, one)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read uploads: %w", err)
	}
	return list, nil
}

// insert stores an upload, unless there are too many, or the sizes of its tenant's open uploads would exceed most bytes.
func (t table) insert(ctx context.Context, r record, most int64, claim *idempotency.Claim) error {
	spec, err := json.Marshal(r.Spec)
	if err != nil {
		return err
	}
	return t.write(ctx, func(tx *db.Tx) error {
		var all, count, bytes int64
		err := tx.Query(`SELECT count(*), count(CASE tenant WHEN ?1 THEN 1 END), coalesce(sum(CASE tenant WHEN ?1 THEN json_extract(spec, '$.size') END), 0) FROM upload WHERE file = ''`, []any{r.tenant},
			func(row *db.Row) error { all, count, bytes = row.Int64(0), row.Int64(1), row.Int64(2); return nil })
		switch {
		case err != nil:
			return err
		case count >= holt.MostUploads:
			return holt.Errorf(holt.TooMany, "the tenant %s has %d open uploads; no more are allowed", r.tenant, count).WithHint("commit some, or remove them with deleteUpload; they expire %s after the last byte", holt.ShortDuration(holt.UploadKept))
		case all >= holt.MostUploadsOfAll:
			return holt.Errorf(holt.TooMany, "the daemon has %d open uploads; no more are allowed", all).WithHint("try again later: they expire %s after the last byte", holt.ShortDuration(holt.UploadKept))
		case r.Spec.Size > most-bytes:
			return holt.Errorf(holt.OutOfSpace, "no room for an upload of %d bytes: open uploads of the tenant %s may have %d bytes in all and have %d", r.Spec.Size, r.tenant, most, bytes).
				WithHint("a tenant's uploads may take half of the free room of the disk with the data directory; delete some, or wait: they expire %s after their last byte", holt.ShortDuration(holt.UploadKept))
		}
		if err := claim.Bind(tx, string(r.ID)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO upload (id, tenant, spec, created, touched) VALUES (?, ?, ?, ?, ?)`, r.ID, r.tenant, string(spec), r.CreatedAt.UnixNano(), r.touched.UnixNano())
	})
}

func (t table) touch(ctx context.Context, id holt.UploadID, now time.Time) error {
	return t.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE upload SET touched = ? WHERE id = ?`, now.UnixNano(), id)
	})
}

// setSure writes the column sure.
func (t table) setSure(ctx context.Context, id holt.UploadID, sure int64) error {
	return t.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE upload SET sure = ? WHERE id = ?`, sure, id)
	})
}

// done records a committed upload, and deletes the oldest committed ones of its tenant beyond [holt.MostUploads].
func (t table) done(ctx context.Context, id holt.UploadID, sum string, info holt.FileInfo, now time.Time) error {
	file, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return t.write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`UPDATE upload SET touched = ?, sha256 = ?, file = ? WHERE id = ?`, now.UnixNano(), sum, string(file), id); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM upload WHERE id IN (SELECT id FROM upload WHERE file <> '' AND tenant = (SELECT tenant FROM upload WHERE id = ?)
			ORDER BY touched DESC, id LIMIT -1 OFFSET ?)`, id, holt.MostUploads)
	})
}

func (t table) erase(ctx context.Context, id holt.UploadID) error {
	return t.write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM upload WHERE id = ?`, id) })
}

func (t table) write(ctx context.Context, fn func(*db.Tx) error) error {
	err := t.d.Write(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		return hosterror.Full(fmt.Errorf("write uploads: %w", err))
	}
	return err
}
