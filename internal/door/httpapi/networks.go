package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

func (s *Server) networks(api huma.API) {
	const tag, path = "computers", "/v1/computers/{computer}/network"
	nouns := s.opt.Nouns.Networks

	register(api, describe(http.MethodGet, path, "getComputerNetwork", tag, "Get what a computer may reach"),
		func(ctx context.Context, in *OneComputer) (*reply[holt.NetworkPolicy], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			p, err := nouns.Get(ctx, ref)
			return &reply[holt.NetworkPolicy]{p}, err
		})

	op := describe(http.MethodPut, path, "setComputerNetwork", tag, "Change what a computer may reach")
	op.Description = "It counts at once, and for a computer that does not run from its next start: connections that are not allowed any more are cut off before this answers."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Body holt.NetworkPolicy
	}) (*reply[holt.NetworkPolicy], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		p, err := nouns.Set(ctx, ref, in.Body)
		return &reply[holt.NetworkPolicy]{p}, err
	})

	register(api, describe(http.MethodGet, path+"/traffic", "getComputerTraffic", tag, "Get what a computer has sent and received, by destination"),
		func(ctx context.Context, in *OneComputer) (*reply[holt.NetworkTraffic], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			t, err := nouns.Traffic(ctx, ref)
			return &reply[holt.NetworkTraffic]{t}, err
		})
}
