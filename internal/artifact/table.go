package artifact

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
)

// Schema makes the tables of this package in the control database. Times are nanoseconds since 1970.
const Schema = tables + rulesSchema

const tables = `
CREATE TABLE bucket (
	id      INTEGER PRIMARY KEY,
	tenant  TEXT NOT NULL,
	name    TEXT NOT NULL,
	created INTEGER NOT NULL,
	replace INTEGER NOT NULL,
	retain  INTEGER NOT NULL,         -- milliseconds
	expire  INTEGER NOT NULL,         -- milliseconds; 0: never
	keep    INTEGER NOT NULL,         -- versions of a name; 0: all
	quota   INTEGER NOT NULL,         -- MiB; 0: none
	scan    TEXT NOT NULL,            -- command or URL; '' without
	used    INTEGER NOT NULL DEFAULT 0, -- bytes of its artifacts, also of those in state writing, but not of deleting ones
	changed INTEGER NOT NULL DEFAULT 0, -- counts changes of keep and replace; 0: all artifacts are as they want
	s3      TEXT NOT NULL DEFAULT '{}', -- what only the S3 door reads
	UNIQUE (tenant, name)
);
CREATE TABLE artifact (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
	id      TEXT NOT NULL UNIQUE,
	bucket  INTEGER NOT NULL,
	name    TEXT NOT NULL,
	version INTEGER NOT NULL DEFAULT 0, -- order of those of one name
	newest  INTEGER NOT NULL DEFAULT 0,
	state   TEXT NOT NULL,            -- writing, uploading: not there yet; then storing or ready; marker: a delete marker; deleting: its bytes are being removed
	held    TEXT NOT NULL DEFAULT '', -- workspace with a checkpoint that is named by the id
	source  TEXT NOT NULL DEFAULT '', -- path in the checkpoint
	size    INTEGER NOT NULL DEFAULT 0, -- of one in state writing: what it has claimed of the bucket's quota
	sha256  BLOB,                     -- NULL while it is not ready
	tree    INTEGER NOT NULL DEFAULT 0, -- bytes of the index of a directory; 0: it is a file
	body    BLOB,                     -- the bytes of a small one; NULL: they are in the archive
	type    TEXT NOT NULL,
	created INTEGER NOT NULL,
	retain  INTEGER NOT NULL DEFAULT 0,
	hold    INTEGER NOT NULL DEFAULT 0,
	tags    TEXT NOT NULL DEFAULT '{}',
	computer TEXT NOT NULL,           -- id, and
	called  TEXT NOT NULL,            -- name of the computer that it comes from; ''
	origin  TEXT NOT NULL DEFAULT '{}',
	due     INTEGER NOT NULL DEFAULT 0, -- the rules of its bucket delete it as soon as it may be deleted
	refused TEXT NOT NULL DEFAULT '', -- why the scan of its bucket refuses it
	etag    TEXT NOT NULL DEFAULT '', -- of S3; '': by the id
	headers TEXT NOT NULL DEFAULT '{}',
	parts   INTEGER NOT NULL DEFAULT 0 -- of a complete upload; its bytes are those of artifact_part
);
CREATE TABLE artifact_part (
	artifact INTEGER NOT NULL,  -- seq
	n        INTEGER NOT NULL,  -- number
	part     TEXT NOT NULL,     -- of the archive's space
	size     INTEGER NOT NULL,
	etag     TEXT NOT NULL,
	created  INTEGER NOT NULL,
	headers  TEXT NOT NULL,
	off      INTEGER NOT NULL DEFAULT 0, -- in the complete object
	PRIMARY KEY (artifact, n)
) WITHOUT ROWID;
CREATE INDEX artifact_computer ON artifact (computer) WHERE computer <> '';
CREATE INDEX artifact_name ON artifact (bucket, name, version DESC);
CREATE INDEX artifact_called ON artifact (called) WHERE called <> '';
CREATE INDEX artifact_held ON artifact (held) WHERE held <> '';
CREATE INDEX artifact_unready ON artifact (state) WHERE state <> 'ready';
` + linkSchema

// bucket is a row of table bucket.
type bucket struct {
	id           int64
	tenant, name string
	created      time.Time
	replace      bool
	retain       time.Duration
	expire       time.Duration
	keep         int
	quotaMB      int64
	scan         string
	used         int64 // bytes
	changed      int64
}

const bucketColumns = `id, tenant, name, created, replace, retain, expire, keep, quota, scan, used, changed`

func scanBucket(r *db.Row) bucket {
	return bucket{r.Int64(0), r.Text(1), r.Text(2), time.Unix(0, r.Int64(3)).UTC(), r.Int64(4) != 0, time.Duration(r.Int64(5)) * time.Millisecond,
		time.Duration(r.Int64(6)) * time.Millisecond, int(r.Int64(7)), r.Int64(8), r.Text(9), r.Int64(10), r.Int64(11)}
}

// row is a row of table artifact with the names of its bucket and tenant.
type row struct {
	holt.Artifact
	seq       int64
	version   int64
	bucketID  int64
	held      holt.WorkspaceID
	source    string
	inline    bool   // its bytes are in the row
	indexSize int64  // bytes of the index of a directory
	own       bool   // its computer itself publishes it
	refused   string // why the scan of the bucket refuses it
	etag      string
	headers   map[string]string
	parts     int
	arrived   func(*row)         // called with its bytes stored, before it is visible; nil: nothing is
	may       func(*db.Tx) error // called before it is visible, in the same transaction; nil: it may
}

// columns is what scan takes. CROSS JOIN has SQLite look up the bucket of each artifact, and not the other way round.
const columns = `a.seq, a.id, b.name, a.name, a.newest, a.state, a.held, a.source, a.size, coalesce(lower(hex(a.sha256)), ''), a.body IS NOT NULL,
	a.type, a.created, a.retain, a.hold, a.tags, a.origin, b.tenant, a.bucket, a.version, a.tree,
	a.etag, a.headers, a.parts FROM artifact a CROSS JOIN bucket b ON b.id = a.bucket `

func scan(r *db.Row) (a row) {
	a.seq, a.ID, a.Bucket, a.Name, a.Newest, a.State = r.Int64(0), holt.ArtifactID(r.Text(1)), r.Text(2), r.Text(3), r.Int64(4) != 0, holt.ArtifactState(r.Text(5))
	a.held, a.source, a.Size, a.SHA256, a.inline = holt.WorkspaceID(r.Text(6)), r.Text(7), r.Int64(8), r.Text(9), r.Int64(10) != 0
	a.MediaType, a.CreatedAt, a.Hold = r.Text(11), time.Unix(0, r.Int64(12)).UTC(), r.Int64(14) != 0
	if until := r.Int64(13); until != 0 {
		at := time.Unix(0, until).UTC()
		a.RetainUntil = &at
	}
	// Only this package writes them.
	_ = json.Unmarshal(r.Bytes(15), &a.Tags)
	_ = json.Unmarshal(r.Bytes(16), &a.Origin)
	a.Tenant, a.bucketID, a.version, a.indexSize = r.Text(17), r.Int64(18), r.Int64(19), r.Int64(20)
	a.Tree = a.indexSize > 0
	a.etag, a.parts = r.Text(21), int(r.Int64(23))
	_ = json.Unmarshal(r.Bytes(22), &a.headers)
	return a
}

func (s *Store) rows(ctx context.Context, condition string, args ...any) (list []row, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		list, err = rows(tx, condition, args...)
		return err
	})
	return list, err
}

func rows(tx *db.Tx, condition string, args ...any) (list []row, err error) {
	err = tx.Query(`SELECT `+columns+condition, args, func(r *db.Row) error {
		list = append(list, scan(r))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read artifacts: %w", err)
	}
	return list, nil
}

// write runs a transaction that survives power loss.
func (s *Store) write(ctx context.Context, fn func(*db.Tx) error) error {
	err := s.cfg.DB.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		err = fmt.Errorf("write control database: %w", err)
	}
	return hosterror.Describe(err)
}

// findBucket returns a bucket of the caller's tenant.
func findBucket(ctx context.Context, tx *db.Tx, name string) (b bucket, err error) {
	found := false
	err = tx.Query(`SELECT `+bucketColumns+` FROM bucket WHERE tenant = ? AND name = ?`, []any{holt.TenantOf(ctx), name}, func(r *db.Row) error {
		found = true
		b = scanBucket(r)
		return nil
	})
	if err == nil && !found {
		err = noBucket(name)
	}
	return b, err
}

func noBucket(name string) error {
	return holt.Errorf(holt.NotFound, "there is no bucket %q", holt.Clip(name, 80)).WithHint("holt bucket list shows the buckets there are")
}

// insertBucket creates a bucket of the caller's tenant.
func insertBucket(ctx context.Context, tx *db.Tx, spec holt.BucketSpec, now time.Time) error {
	tenant := holt.TenantOf(ctx)
	many, taken := int64(0), false
	err := tx.Query(`SELECT count(*), coalesce(max(name = ?2), 0) FROM bucket WHERE tenant = ?1`, []any{tenant, spec.Name}, func(r *db.Row) error {
		many, taken = r.Int64(0), r.Int64(1) != 0
		return nil
	})
	switch {
	case err != nil:
		return err
	case taken:
		return holt.Errorf(holt.AlreadyExists, "the bucket %q already exists", spec.Name).WithHint("choose another name")
	case many >= holt.MostBuckets:
		return holt.Errorf(holt.TooMany, "the tenant %s has %d buckets", cmp.Or(tenant, holt.DefaultTenant), many).WithHint("delete some: holt bucket delete")
	}
	return tx.Exec(`INSERT INTO bucket (tenant, name, created, replace, retain, expire, keep, quota, scan) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		tenant, spec.Name, now.UnixNano(), spec.Replace, spec.RetainMS, spec.ExpireMS, spec.Keep, spec.QuotaMB, spec.Scan)
}

// bucketFor returns the bucket of a new artifact; it creates those that Holt uses by itself.
func bucketFor(ctx context.Context, tx *db.Tx, name string, now time.Time) (bucket, error) {
	name = cmp.Or(name, holt.DefaultBucket)
	b, err := findBucket(ctx, tx, name)
	if (name == holt.DefaultBucket || name == holt.ComputersBucket) && holt.CodeOf(err) == holt.NotFound {
		if err = insertBucket(ctx, tx, holt.BucketSpec{Name: name}, now); err == nil {
			b, err = findBucket(ctx, tx, name)
		}
	}
	return b, err
}

// visible selects the artifacts that callers see.
const visible = `a.state IN ('storing', 'ready')`

// show makes an artifact in state writing visible as the newest of its name, unless its bucket b has no room for it or has
// another scan by now. Earlier versions that the bucket does not keep are deleted, as far as they may be.
func show(tx *db.Tx, a row, b bucket, now time.Time) error {
	b, err := b.admits(tx)
	if err != nil {
		return err
	}
	if a.own {
		if err := others(tx, a); err != nil {
			return err
		}
	}
	if a.may != nil {
		if err := a.may(tx); err != nil {
			return err
		}
	}
	err = tx.Exec(`UPDATE artifact SET newest = 0 WHERE bucket = ? AND name = ? AND newest`, a.bucketID, a.Name)
	if err == nil {
		err = tx.Exec(`UPDATE artifact SET newest = 1, version = (SELECT max(version) + 1 FROM artifact WHERE bucket = ?2 AND name = ?3) WHERE seq = ?1`, a.seq, a.bucketID, a.Name)
	}
	if err == nil {
		err = b.outdate(tx, a.Name, now)
	}
	if err == nil && b.replace {
		err = tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE bucket = ? AND name = ? AND state = 'marker'`, a.bucketID, a.Name)
	}
	return err
}

// others returns Conflict if another computer has published the newest artifact of a name.
func others(tx *db.Tx, a row) error {
	taken := false
	err := tx.Query(`SELECT 1 FROM artifact WHERE bucket = ? AND name = ? AND newest AND computer <> ?`, []any{a.bucketID, a.Name, a.Origin.ComputerID}, func(*db.Row) error { taken = true; return nil })
	if err == nil && taken {
		err = holt.Errorf(holt.Conflict, "another computer has published %s", a.Name).WithHint("choose another name")
	}
	return err
}

// find returns an artifact by id, or by BUCKET/NAME, the newest version. The caller may see it.
func (s *Store) find(ctx context.Context, ref string) (row, error) {
	condition, args := `WHERE a.id = ?1 AND (?2 = '' OR b.tenant = ?2) AND `+visible, []any{ref, holt.Confined(ctx)}
	if in, name, ok := holt.CutArtifact(ref); ok {
		condition, args = `WHERE a.bucket = (SELECT id FROM bucket WHERE tenant = ?1 AND name = ?2) AND a.name = ?3 AND a.newest AND `+visible, []any{holt.TenantOf(ctx), in, name}
	}
	list, err := s.rows(ctx, condition, args...)
	if err != nil {
		return row{}, err
	}
	if len(list) == 0 {
		return row{}, holt.Errorf(holt.NotFound, "there is no artifact %q", holt.Clip(ref, 80)).
			WithHint("give its id, or BUCKET/NAME; holt artifact list shows the artifacts there are")
	}
	return list[0], nil
}
