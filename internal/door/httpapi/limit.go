package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Limits are what the computers of tenants may have together.
type Limits interface {
	// Get returns what a tenant may have and has. InvalidArgument: it cannot name one.
	Get(ctx context.Context, tenant string) (holt.Limit, error)
	// List returns those of tenants that have limits or computers, and of the default one, in the order of their names.
	List(ctx context.Context) ([]holt.Limit, error)
	// Set changes what a tenant may have; what it has already it keeps. InvalidArgument;
	// Forbidden to tokens of other tenants than the default one.
	Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (holt.Limit, error)
}

// OneTenant names a tenant in a path.
type OneTenant struct {
	Tenant string `path:"tenant" doc:"a DNS label; that of tokens without one is default"`
}

func (s *Server) limits(api huma.API) {
	const tag, path = "limits", "/v1/limits"
	nouns := s.opt.Nouns.Limits

	op := describe(http.MethodGet, path, "listLimits", tag, "List what tenants may have, and what they have")
	op.Description = "Of tenants that have limits or computers, and of the default one."
	register(api, op, func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Limit]], error) {
		all, err := nouns.List(ctx)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(l holt.Limit) string { return l.Tenant }, *in), nil
	})

	register(api, describe(http.MethodGet, path+"/{tenant}", "getLimit", tag, "Get what a tenant may have, and what it has"),
		func(ctx context.Context, in *OneTenant) (*reply[holt.Limit], error) {
			l, err := nouns.Get(ctx, in.Tenant)
			return &reply[holt.Limit]{l}, err
		})

	op = describe(http.MethodPatch, path+"/{tenant}", "setLimit", tag, "Change what a tenant may have")
	op.Description = "It counts at once for what is made, started, resumed, forked, restored or resized: that is refused with too_many when it takes more than there may be, " +
		"also when two calls come at once. What is there already stays when a limit is lowered; only a computer that has run for longer than max_run_ms is paused. " +
		"Tokens of other tenants than default may not change any: forbidden."
	register(api, op, func(ctx context.Context, in *struct {
		OneTenant
		Keyed
		Body holt.LimitChange
	}) (*reply[holt.Limit], error) {
		l, err := nouns.Set(ctx, in.Tenant, in.Body, in.Key)
		return &reply[holt.Limit]{l}, err
	})
}
