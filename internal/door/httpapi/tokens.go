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
	keys := s.opt.Nouns.S3Keys
	bind(s, api.CreateS3Key, func(ctx context.Context, in *api.TokenKeyed) (holt.NewS3Key, error) {
		return keys.Create(ctx, in.Token, in.Key)
	})
	bindList(s, api.ListS3Keys, func(ctx context.Context, _ *api.Paging) ([]holt.S3Key, error) { return keys.List(ctx) })
	bind(s, api.DeleteS3Key, func(ctx context.Context, in *api.S3KeyKeyed) (api.None, error) {
		return api.None{}, keys.Delete(ctx, in.ID, in.Key)
	})
}
