package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Previews are ports of computers that others reach by host name, and the names of one's own that they have besides.
type Previews interface {
	// List returns those of a computer, by port.
	List(ctx context.Context, computer string) ([]holt.Preview, error)
	// Set makes or changes one. What strangers have open ends when it is made private. TooMany.
	Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (holt.Preview, error)
	// Delete removes one: what is open through it ends, and its links are no longer valid.
	Delete(ctx context.Context, computer string, port int, key string) error
	// Link makes a link to one, which is made if there is none; each call makes another. Unavailable: nothing
	// listens for previews.
	Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error)
	// Domains returns those of a computer, by name.
	Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error)
	// SetDomain has a name show a port. AlreadyExists: it shows another computer's.
	SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error)
	DeleteDomain(ctx context.Context, computer, domain, key string) error
}

func (s *Server) previews() {
	n := s.opt.Nouns.Previews
	bindList(s, api.ListPreviews, func(ctx context.Context, in *api.PreviewsOf) ([]holt.Preview, error) { return n.List(ctx, in.Computer) })
	bind(s, api.SetPreview, func(ctx context.Context, in *api.PreviewSet) (holt.Preview, error) {
		return n.Set(ctx, in.Computer, in.Port, in.Body)
	})
	bind(s, api.DeletePreview, func(ctx context.Context, in *api.PreviewKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Computer, in.Port, in.Key)
	})
	bind(s, api.LinkPreview, func(ctx context.Context, in *api.PreviewLink) (holt.PreviewLink, error) {
		return n.Link(ctx, in.Computer, in.Port, in.Body)
	})
	bindList(s, api.ListDomains, func(ctx context.Context, in *api.PreviewsOf) ([]holt.PreviewDomain, error) {
		return n.Domains(ctx, in.Computer)
	})
	bind(s, api.SetDomain, func(ctx context.Context, in *api.DomainSet) (holt.PreviewDomain, error) {
		return n.SetDomain(ctx, in.Computer, in.Domain, in.Body)
	})
	bind(s, api.DeleteDomain, func(ctx context.Context, in *api.DomainKeyed) (api.None, error) {
		return api.None{}, n.DeleteDomain(ctx, in.Computer, in.Domain, in.Key)
	})
}
