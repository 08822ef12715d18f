package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) limits() {
	n := s.opt.Nouns.Limits
	bindList(s, api.ListLimits, func(ctx context.Context, _ *api.Paging) ([]holt.Limit, error) { return n.List(ctx) })
	bind(s, api.GetLimit, func(ctx context.Context, in *api.OneTenant) (holt.Limit, error) { return n.Get(ctx, in.Tenant) })
	bind(s, api.SetLimit, func(ctx context.Context, in *api.LimitChange) (holt.Limit, error) {
		return n.Set(ctx, in.Tenant, in.Body, in.Key)
	})
}
