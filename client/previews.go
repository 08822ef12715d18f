package client

import (
	"context"
	"net/http"
	"strconv"

	"holt"
)

// Previews are ports of computers that others reach by host name.
type Previews struct{ c *Client }

// List returns the previews of a computer, by port.
func (n Previews) List(ctx context.Context, computer string) ([]holt.Preview, error) {
	return list[holt.Preview](ctx, n.c, join("computers", computer, "previews"), nil)
}

// Set makes the preview of a port, or changes who may see it.
func (n Previews) Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (out holt.Preview, err error) {
	err = n.c.json(ctx, call{method: http.MethodPut, path: join("computers", computer, "previews", strconv.Itoa(port)), body: spec}, &out)
	return out, err
}

// Delete removes the preview of a port, with its links.
func (n Previews) Delete(ctx context.Context, computer string, port int, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", computer, "previews", strconv.Itoa(port)), keyed: true, key: key}, nil)
}

// Link makes a link to the preview of a port.
func (n Previews) Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (out holt.PreviewLink, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", computer, "previews", strconv.Itoa(port), "links"), body: spec, keyed: true}, &out)
	return out, err
}

// Domains returns the domains of a computer, by name.
func (n Previews) Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error) {
	return list[holt.PreviewDomain](ctx, n.c, join("computers", computer, "domains"), nil)
}

// SetDomain has a domain show a port of a computer.
func (n Previews) SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (out holt.PreviewDomain, err error) {
	err = n.c.json(ctx, call{method: http.MethodPut, path: join("computers", computer, "domains", domain), body: spec}, &out)
	return out, err
}

// DeleteDomain takes a domain away from a computer.
func (n Previews) DeleteDomain(ctx context.Context, computer, domain, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", computer, "domains", domain), keyed: true, key: key}, nil)
}
