package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Networks are what computers may reach, and what they did.
type Networks struct{ c *Client }

// Get returns what a computer may reach.
func (n Networks) Get(ctx context.Context, ref string) (holt.NetworkPolicy, error) {
	return do(ctx, n.c, api.GetNetwork, api.OneComputer{ref})
}

// Set changes it at once: what is not allowed any more is cut off.
func (n Networks) Set(ctx context.Context, ref string, policy holt.NetworkPolicy) (holt.NetworkPolicy, error) {
	return do(ctx, n.c, api.SetNetwork, api.NetworkChange{api.OneComputer{ref}, policy})
}

// Traffic returns what a computer has sent and received since it was made.
func (n Networks) Traffic(ctx context.Context, ref string) (holt.NetworkTraffic, error) {
	return do(ctx, n.c, api.GetTraffic, api.OneComputer{ref})
}
