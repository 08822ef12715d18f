package client

import (
	"context"
	"net/http"

	"holt"
)

// Tokens are the API tokens of a tenant.
type Tokens struct{ c *Client }

// Create makes a token. Its secret is in this answer and nowhere else: an answer that was lost, and comes
// again, has none.
func (n Tokens) Create(ctx context.Context, spec holt.TokenSpec, key string) (made holt.NewToken, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("tokens"), body: spec, keyed: true, key: key}, &made)
	return made, err
}

// Get returns a token by id, or by a name that only one has.
func (n Tokens) Get(ctx context.Context, ref string) (t holt.Token, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("tokens", ref)}, &t)
	return t, err
}

// List returns all of them, oldest first.
func (n Tokens) List(ctx context.Context) ([]holt.Token, error) {
	return list[holt.Token](ctx, n.c, join("tokens"), nil)
}

// Delete revokes a token, those that it has made, and what they have open.
func (n Tokens) Delete(ctx context.Context, ref, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("tokens", ref), keyed: true, key: key}, nil)
}
