package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Archive is what all workspaces share for their cold bytes.
type Archive struct{ c *Client }

// Get returns what it holds.
func (n Archive) Get(ctx context.Context) (holt.Archive, error) {
	return do(ctx, n.c, api.GetArchive, api.None{})
}

// Collect removes what no workspace needs any more.
func (n Archive) Collect(ctx context.Context, key string) (holt.Collected, error) {
	return do(ctx, n.c, api.CollectArchive, api.Keyed{key})
}

// Check reads and verifies everything.
func (n Archive) Check(ctx context.Context) (holt.ArchiveReport, error) {
	return do(ctx, n.c, api.CheckArchive, api.None{})
}
