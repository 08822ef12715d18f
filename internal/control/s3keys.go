package control

import (
	"context"

	"holt"
	"holt/internal/access"
	"holt/internal/idempotency"
)

// S3Keys are the S3 keys as the API has them; see [holt/internal/nouns.S3Keys].
type S3Keys struct {
	*access.S3Keys
	Calls *idempotency.Keys
}

// Create makes a key of a token. A repeated call gets the same key.
func (n S3Keys) Create(ctx context.Context, token, key string) (holt.NewS3Key, error) {
	made, err := idempotency.Once(ctx, n.Calls, idempotency.Call[holt.S3Key]{
		Key: key, Method: "s3-key.create", Request: token,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.S3Key, error) {
			return n.S3Keys.Create(ctx, token, claim.Bind)
		},
		Again: n.Get,
	})
	if err != nil {
		return holt.NewS3Key{}, err
	}
	return holt.NewS3Key{S3Key: made, Secret: n.Secret(made.ID)}, nil
}

// Delete removes a key.
func (n S3Keys) Delete(ctx context.Context, id, key string) error {
	_, err := idempotency.Once(ctx, n.Calls, idempotency.Call[struct{}]{
		Key: key, Method: "s3-key.delete", Request: id, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			return none, n.S3Keys.Delete(ctx, id)
		},
	})
	return err
}
