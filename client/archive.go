package client

import (
	"context"
	"net/http"

	"holt"
)

// Archive is what all workspaces share for their cold bytes.
type Archive struct{ c *Client }

// Get returns what it holds.
func (n Archive) Get(ctx context.Context) (out holt.Archive, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("archive")}, &out)
	return out, err
}

// Collect removes what no workspace needs any more.
func (n Archive) Collect(ctx context.Context, key string) (out holt.Collected, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("archive", "collect"), keyed: true, key: key}, &out)
	return out, err
}

// Check reads and verifies everything.
func (n Archive) Check(ctx context.Context) (out holt.ArchiveReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("archive", "check")}, &out)
	return out, err
}
