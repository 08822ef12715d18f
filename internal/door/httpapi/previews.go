package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

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
