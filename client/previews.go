package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Previews are ports of computers that others reach by host name.
type Previews struct{ c *Client }

func onePreview(computer string, port int) api.OnePreview {
	return api.OnePreview{api.OneComputer{computer}, port}
}

func oneDomain(computer, domain string) api.OneDomain {
	return api.OneDomain{api.OneComputer{computer}, domain}
}

// List returns the previews of a computer, by port.
func (n Previews) List(ctx context.Context, computer string) ([]holt.Preview, error) {
	return doList(ctx, n.c, api.ListPreviews, api.PreviewsOf{OneComputer: api.OneComputer{computer}})
}

// Set makes the preview of a port, or changes who may see it.
func (n Previews) Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (holt.Preview, error) {
	return do(ctx, n.c, api.SetPreview, api.PreviewSet{onePreview(computer, port), spec})
}

// Delete removes the preview of a port, with its links.
func (n Previews) Delete(ctx context.Context, computer string, port int, key string) error {
	return doNone(ctx, n.c, api.DeletePreview, api.PreviewKeyed{onePreview(computer, port), api.Keyed{key}})
}

// Link makes a link to the preview of a port.
func (n Previews) Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error) {
	return do(ctx, n.c, api.LinkPreview, api.PreviewLink{onePreview(computer, port), api.Keyed{}, spec})
}

// Domains returns the domains of a computer, by name.
func (n Previews) Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error) {
	return doList(ctx, n.c, api.ListDomains, api.PreviewsOf{OneComputer: api.OneComputer{computer}})
}

// SetDomain has a domain show a port of a computer.
func (n Previews) SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error) {
	return do(ctx, n.c, api.SetDomain, api.DomainSet{oneDomain(computer, domain), spec})
}

// DeleteDomain takes a domain away from a computer.
func (n Previews) DeleteDomain(ctx context.Context, computer, domain, key string) error {
	return doNone(ctx, n.c, api.DeleteDomain, api.DomainKeyed{oneDomain(computer, domain), api.Keyed{key}})
}
