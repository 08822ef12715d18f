package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// S3Keys are the keys with which clients of S3 sign requests.
type S3Keys struct{ c *Client }

// Create makes a key of a token, by id or name.
func (n S3Keys) Create(ctx context.Context, token, key string) (holt.NewS3Key, error) {
	return do(ctx, n.c, api.CreateS3Key, api.TokenKeyed{api.OneToken{token}, api.Keyed{key}})
}

// Get returns a key.
func (n S3Keys) Get(ctx context.Context, id string) (holt.S3Key, error) {
	all, err := n.List(ctx)
	for _, k := range all {
		if k.ID == id {
			return k, nil
		}
	}
	if err == nil {
		err = holt.Errorf(holt.NotFound, "there is no S3 key %q", id)
	}
	return holt.S3Key{}, err
}

// List returns all keys, by id.
func (n S3Keys) List(ctx context.Context) ([]holt.S3Key, error) {
	return doList(ctx, n.c, api.ListS3Keys, api.Paging{})
}

// Delete removes a key.
func (n S3Keys) Delete(ctx context.Context, id, key string) error {
	return doNone(ctx, n.c, api.DeleteS3Key, api.S3KeyKeyed{api.Keyed{key}, id})
}
