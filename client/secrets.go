package client

import (
	"context"
	"net/http"

	"holt"
)

// Secrets are what the proxies of computers add to requests to their hosts. Nobody gets a value back.
type Secrets struct{ c *Client }

// List returns a computer's secrets in the order of their names.
func (n Secrets) List(ctx context.Context, computer string) ([]holt.ComputerSecret, error) {
	return list[holt.ComputerSecret](ctx, n.c, join("computers", computer, "secrets"), nil)
}

// Set gives a computer a secret, or replaces the one of that name, at once.
func (n Secrets) Set(ctx context.Context, computer, name string, secret holt.HostSecret) (out holt.ComputerSecret, err error) {
	err = n.c.json(ctx, call{method: http.MethodPut, path: join("computers", computer, "secrets", name), body: secret}, &out)
	return out, err
}

// Delete takes a secret away at once.
func (n Secrets) Delete(ctx context.Context, computer, name, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", computer, "secrets", name), keyed: true, key: key}, nil)
}
