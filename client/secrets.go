package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Secrets are what the proxies of computers add to requests to their hosts. Nobody gets a value back.
type Secrets struct{ c *Client }

// List returns a computer's secrets in the order of their names.
func (n Secrets) List(ctx context.Context, computer string) ([]holt.ComputerSecret, error) {
	return doList(ctx, n.c, api.ListSecrets, api.ComputerList{OneComputer: api.OneComputer{computer}})
}

// Set gives a computer a secret, or replaces the one of that name, at once.
func (n Secrets) Set(ctx context.Context, computer, name string, secret holt.HostSecret) (holt.ComputerSecret, error) {
	return do(ctx, n.c, api.SetSecret, api.SecretChange{api.OneSecret{api.OneComputer{computer}, name}, secret})
}

// Delete takes a secret away at once.
func (n Secrets) Delete(ctx context.Context, computer, name, key string) error {
	return doNone(ctx, n.c, api.DeleteSecret, api.SecretKeyed{api.OneSecret{api.OneComputer{computer}, name}, api.Keyed{key}})
}
