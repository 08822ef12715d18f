package client

import (
	"context"
	"net/url"

	"holt"
	"holt/internal/api"
)

// SSH is the door of SSH clients.
type SSH struct{ c *Client }

// Get returns what SSH clients need to know of it.
func (n SSH) Get(ctx context.Context) (holt.SSHHost, error) {
	return do(ctx, n.c, api.GetSSHHost, api.None{})
}

// Host is Get without an error: it returns nothing if the daemon does not answer.
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
	return doList(ctx, n.c, api.ListSSHKeys, api.Paging{})
}

// Add adds a key, with the rights of the caller.
func (n SSHKeys) Add(ctx context.Context, spec holt.SSHKeySpec, key string) (holt.SSHKey, error) {
	return do(ctx, n.c, api.AddSSHKey, api.Body[holt.SSHKeySpec]{api.Keyed{key}, spec})
}

// Delete removes a key by its id, fingerprint or name.
func (n SSHKeys) Delete(ctx context.Context, ref, key string) (holt.SSHKey, error) {
	return do(ctx, n.c, api.DeleteSSHKey, api.SSHKeyKeyed{api.Keyed{key}, ref})
}
