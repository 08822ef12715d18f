package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Tokens are the API tokens of a tenant.
type Tokens struct{ c *Client }

// Create makes a token. Its secret is in this answer only: a repeated call gets the token without it.
func (n Tokens) Create(ctx context.Context, spec holt.TokenSpec, key string) (holt.NewToken, error) {
	return do(ctx, n.c, api.CreateToken, api.Body[holt.TokenSpec]{api.Keyed{key}, spec})
}

// Get returns a token by id, or by a name that only one has.
func (n Tokens) Get(ctx context.Context, ref string) (holt.Token, error) {
	return do(ctx, n.c, api.GetToken, api.OneToken{ref})
}

// List returns all of them, oldest first.
func (n Tokens) List(ctx context.Context) ([]holt.Token, error) {
	return doList(ctx, n.c, api.ListTokens, api.Paging{})
}

// Delete revokes a token, those that it has made, and what they have open.
func (n Tokens) Delete(ctx context.Context, ref, key string) error {
	return doNone(ctx, n.c, api.DeleteToken, api.TokenKeyed{api.OneToken{ref}, api.Keyed{key}})
}
