package artifact

import (
	"cmp"
	"context"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// CreateBucket makes a bucket.
//
// Errors: InvalidArgument (the name), AlreadyExists, TooMany.
func (s *Store) CreateBucket(ctx context.Context, spec holt.BucketSpec, key string) (holt.Bucket, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Bucket]{
		Key: key, Method: "bucket.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Bucket, error) {
			if _, err := holt.ParseName(spec.Name); err != nil {
				return holt.Bucket{}, err
			}
			if err := cmp.Or(checkBucket(spec), checkScan(spec.Scan)); err != nil {
				return holt.Bucket{}, err
			}
			err := s.write(ctx, func(tx *db.Tx) error {
				if err := claim.Bind(tx, spec.Name); err != nil {
					return err
				}
				return insertBucket(ctx, tx, spec, s.cfg.Now())
			})
			if err != nil {
				return holt.Bucket{}, err
			}
			return s.Bucket(ctx, spec.Name)
		},
		Again: s.Bucket,
	})
}

// UpdateBucket changes settings of a bucket. Artifacts that they no longer allow are deleted in the background.
//
// Errors: NotFound, InvalidArgument (no change, or one that cannot be).
func (s *Store) UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Bucket]{
		Key: key, Method: "bucket.update", Request: []any{name, change},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Bucket, error) {
			if change.Scan != nil {
				if err := checkScan(*change.Scan); err != nil {
					return holt.Bucket{}, err
				}
			}
			err := s.write(ctx, func(tx *db.Tx) error {
				b, err := findBucket(ctx, tx, name)
				if err != nil {
					return err
				}
				to := holt.BucketSpec{Replace: b.replace, RetainMS: b.retain.Milliseconds(), ExpireMS: b.expire.Milliseconds(), Keep: b.keep, QuotaMB: b.quotaMB, Scan: b.scan}
				if err := change.Apply(&to); err != nil {
					return err
				}
				if err := checkBucket(to); err != nil {
					return err
				}
				if b.replace != to.Replace || b.keep != to.Keep {
					b.changed++
				}
				return tx.Exec(`UPDATE bucket SET replace = ?, retain = ?, expire = ?, keep = ?, quota = ?, scan = ?, changed = ? WHERE id = ?`,
					to.Replace, to.RetainMS, to.ExpireMS, to.Keep, to.QuotaMB, to.Scan, b.changed, b.id)
			})
			if err != nil {
				return holt.Bucket{}, err
			}
			s.applyRules()
			return s.Bucket(ctx, name)
		},
	})
}

// mostRetention is in milliseconds.
const mostRetention = 100 * 365 * 24 * 3600_000

// checkUntil refuses an end of a retention that is too far away.
func (s *Store) checkUntil(at *time.Time) error {
	if at == nil {
		return nil
	}
	return checkRetention(max(0, at.UnixMilli()-s.cfg.Now().UnixMilli()))
}

func checkRetention(ms int64) error {
	if ms < 0 || ms > mostRetention {
		return holt.Errorf(holt.InvalidArgument, "invalid retention of %d ms", ms).WithHint("use at most 100 years")
	}
	return nil
}

// mostQuota is in MiB.
const mostQuota = 1<<43 - 1

// checkBucket returns InvalidArgument for settings that cannot be.
func checkBucket(spec holt.BucketSpec) error {
	if err := checkRetention(spec.RetainMS); err != nil {
		return err
	}
	switch {
	case spec.ExpireMS < 0 || spec.ExpireMS > mostRetention:
		return holt.Errorf(holt.InvalidArgument, "invalid expiry of %d ms", spec.ExpireMS).WithHint("use at most 100 years")
	case spec.Keep < 0 || spec.Keep > holt.MostBucketKeep:
		return holt.Errorf(holt.InvalidArgument, "a bucket cannot keep %d versions", spec.Keep).WithHint("use 1 to %d, or 0 for all", holt.MostBucketKeep)
	case spec.QuotaMB < 0 || spec.QuotaMB > mostQuota:
		return holt.Errorf(holt.InvalidArgument, "invalid quota of %d MiB", spec.QuotaMB).WithHint("use 0 for no quota")
	}
	return nil
}

// Bucket returns a bucket.
func (s *Store) Bucket(ctx context.Context, name string) (holt.Bucket, error) {
	list, err := s.buckets(ctx, `WHERE b.tenant = ? AND b.name = ?`, holt.TenantOf(ctx), name)
	if err == nil && len(list) == 0 {
		err = noBucket(name)
	}
	if err != nil {
		return holt.Bucket{}, err
	}
	return list[0], nil
}

// Buckets returns all buckets, in any order.
func (s *Store) Buckets(ctx context.Context) ([]holt.Bucket, error) {
	return s.buckets(ctx, `WHERE ?1 = '' OR b.tenant = ?1`, holt.Confined(ctx))
}

func (s *Store) buckets(ctx context.Context, condition string, args ...any) (list []holt.Bucket, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT b.name, b.created, b.replace, b.retain, b.tenant, count(a.seq), coalesce(sum(a.size), 0), b.expire, b.keep, b.quota, b.scan
			FROM bucket b LEFT JOIN artifact a ON a.bucket = b.id AND a.state IN ('storing', 'ready') `+condition+` GROUP BY b.id`, args, func(r *db.Row) error {
			b := holt.Bucket{Name: r.Text(0), CreatedAt: time.Unix(0, r.Int64(1)).UTC(), Replace: r.Int64(2) != 0, RetainMS: r.Int64(3), Tenant: r.Text(4), Artifacts: r.Int64(5), Bytes: r.Int64(6),
				ExpireMS: r.Int64(7), Keep: int(r.Int64(8)), QuotaMB: r.Int64(9), Scan: r.Text(10)}
			b.Scanned = b.Scan != ""
			if actor, _ := holt.ActorOf(ctx); !actor.Admin() {
				b.Scan = ""
			}
			list = append(list, b)
			return nil
		})
	})
	return list, err
}

// DeleteBucket removes an empty bucket.
//
// Errors: NotFound, Conflict (it has artifacts).
func (s *Store) DeleteBucket(ctx context.Context, name, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "bucket.delete", Request: name, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			return none, s.write(ctx, func(tx *db.Tx) error {
				b, err := findBucket(ctx, tx, name)
				if err != nil {
					return err
				}
				used := false
				err = tx.Query(`SELECT 1 FROM artifact WHERE bucket = ? AND state <> 'marker' LIMIT 1`, []any{b.id}, func(*db.Row) error { used = true; return nil })
				if err == nil && used {
					err = holt.Errorf(holt.Conflict, "the bucket %s is not empty", name).WithHint("delete its artifacts first; holt artifact list %s --versions shows them", name)
				}
				if err != nil {
					return err
				}
				if err := tx.Exec(`DELETE FROM artifact WHERE bucket = ?`, b.id); err != nil { // delete markers
					return err
				}
				return tx.Exec(`DELETE FROM bucket WHERE id = ?`, b.id)
			})
		},
	})
	return err
}
