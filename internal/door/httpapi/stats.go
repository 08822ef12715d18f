package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Stats are what computers take of the host. No guest is asked, and none woken.
type Stats interface {
	Get(ctx context.Context, ref string) (holt.ComputerStats, error)
	// List returns them of all computers, in any order.
	List(ctx context.Context) ([]holt.ComputerStats, error)
}

func (s *Server) stats(api huma.API) {
	const tag = "computers"
	nouns := s.opt.Nouns.Stats

	op := describe(http.MethodGet, "/v1/stats", "listComputerStats", tag, "List what computers take of their host, by name")
	op.Description = "No computer is asked or woken: it may be called every second. Two answers make rates of what only grows."
	register(api, op, func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.ComputerStats]], error) {
		all, err := nouns.List(ctx)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(c holt.ComputerStats) string { return c.Computer }, *in), nil
	})

	op = describe(http.MethodGet, "/v1/computers/{computer}/stats", "getComputerStats", tag, "Get what a computer takes of its host")
	op.Description = "The computer is not asked or woken. Two answers make rates of what only grows."
	register(api, op, func(ctx context.Context, in *OneComputer) (*reply[holt.ComputerStats], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := nouns.Get(ctx, ref)
		return &reply[holt.ComputerStats]{one}, err
	})
}
