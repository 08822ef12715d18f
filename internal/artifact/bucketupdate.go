package artifact

import (
	"context"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// UpdateBucket changes a bucket.
//
// Errors: NotFound, InvalidArgument.
func (s *Store) UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Bucket]{
		Key: key, Method: "bucket.update", Request: []any{name, change},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Bucket, error) {
			if change.RetainMS != nil {
				if err := checkRetention(*change.RetainMS); err != nil {
					return holt.Bucket{}, err
				}
			}
			err := s.write(ctx, func(tx *db.Tx) error {
				b, err := findBucket(ctx, tx, name)
				if err != nil {
					return err
				}
				return tx.Exec(`UPDATE bucket SET replace = coalesce(?2, replace), retain = coalesce(?3, retain), expire = coalesce(?4, expire), keep = coalesce(?5, keep) WHERE id = ?1`,
					b.id, orNull(change.Replace), orNull(change.RetainMS), orNull(change.ExpireMS), orNull(change.Keep))
			})
			if err != nil {
				return holt.Bucket{}, err
			}
			return s.Bucket(ctx, name)
		},
	})
}

func orNull[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}
