package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) tokens() {
	n := s.opt.Nouns.Tokens
	bind(s, api.CreateToken, func(ctx context.Context, in *api.Body[holt.TokenSpec]) (holt.NewToken, error) {
		return n.Create(ctx, in.Body, in.Key)
	})
	bindList(s, api.ListTokens, func(ctx context.Context, _ *api.Paging) ([]holt.Token, error) { return n.List(ctx) })
	bind(s, api.GetToken, func(ctx context.Context, in *api.OneToken) (holt.Token, error) { return n.Get(ctx, in.Token) })
	bind(s, api.DeleteToken, func(ctx context.Context, in *api.TokenKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Token, in.Key)
	})
}
