package client

import (
	"context"
	"net/http"

	"holt"
)

// Networks are what computers may reach, and what they did.
type Networks struct{ c *Client }

// Get returns what a computer may reach.
func (n Networks) Get(ctx context.Context, ref string) (out holt.NetworkPolicy, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("computers", ref, "network")}, &out)
	return out, err
}

// Set changes it at once: what is not allowed any more is cut off.
func (n Networks) Set(ctx context.Context, ref string, policy holt.NetworkPolicy) (out holt.NetworkPolicy, err error) {
	err = n.c.json(ctx, call{method: http.MethodPut, path: join("computers", ref, "network"), body: policy}, &out)
	return out, err
}

// Traffic returns what a computer has sent and received since it was made.
func (n Networks) Traffic(ctx context.Context, ref string) (out holt.NetworkTraffic, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("computers", ref, "network", "traffic")}, &out)
	return out, err
}
