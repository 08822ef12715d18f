package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Stats are what computers take of their host.
type Stats struct{ c *Client }

// Get returns that of a computer.
func (n Stats) Get(ctx context.Context, ref string) (holt.ComputerStats, error) {
	return do(ctx, n.c, api.GetStats, api.OneComputer{ref})
}

// List returns that of all computers in the order of their names.
func (n Stats) List(ctx context.Context) ([]holt.ComputerStats, error) {
	return doList(ctx, n.c, api.ListStats, api.Paging{})
}
