package client

import (
	"context"
	"net/http"
	"net/url"

	"holt"
)

// SSH is the door of SSH clients.
type SSH struct{ c *Client }

// Get returns what SSH clients need to know of it.
func (n SSH) Get(ctx context.Context) (out holt.SSHHost, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("ssh")}, &out)
	return out, err
}

// Host is Get for who cannot fail: of a daemon that does not answer nothing is known.
func (n SSH) Host() holt.SSHHost {
	out, _ := n.Get(context.Background())
	return out
}

// Connect returns a connection at whose other end is an SSH server for a computer. It outlives ctx. While a daemon that was there
// is being restarted it waits for the next.
func (n SSH) Connect(ctx context.Context, computer string) (holt.PortConn, error) {
	return n.c.tunnel(ctx, join("computers", computer, "ssh"), url.Values{})
}

// SSHKeys are the keys by which SSH clients come in.
type SSHKeys struct{ c *Client }

// List returns them by id.
func (n SSHKeys) List(ctx context.Context) ([]holt.SSHKey, error) {
	return list[holt.SSHKey](ctx, n.c, join("ssh-keys"), nil)
}

// Add lets who has a key come in, with the rights of who adds it.
func (n SSHKeys) Add(ctx context.Context, spec holt.SSHKeySpec, key string) (out holt.SSHKey, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("ssh-keys"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Delete removes a key by its id, fingerprint or name.
func (n SSHKeys) Delete(ctx context.Context, ref, key string) (out holt.SSHKey, err error) {
	err = n.c.json(ctx, call{method: http.MethodDelete, path: join("ssh-keys", ref), keyed: true, key: key}, &out)
	return out, err
}
