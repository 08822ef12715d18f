package client

import (
	"context"
	"net/http"

	"holt"
)

// Stats are what computers take of their host.
type Stats struct{ c *Client }

// Get returns that of a computer.
func (n Stats) Get(ctx context.Context, ref string) (out holt.ComputerStats, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("computers", ref, "stats")}, &out)
	return out, err
}

// List returns that of all computers in the order of their names.
func (n Stats) List(ctx context.Context) ([]holt.ComputerStats, error) {
	return list[holt.ComputerStats](ctx, n.c, join("stats"), nil)
}
