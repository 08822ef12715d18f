package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

func (s *Server) resize(api huma.API) {
	op := describe(http.MethodPost, "/v1/computers/{computer}/resize", "resizeComputer", "computers", "Change a computer's processors, memory or root disk")
	op.Description = "Of a computer that runs more of each is added at once, and its root file system grows; fewer processors and less memory come with the next start. " +
		"A stopped one has all of it from its next start on, a paused one what can be added as it goes on. A root disk is never made smaller: invalid_argument. " +
		"The answer says what its guest uses, which is the guest's own business, and what is still to come."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.ResizeSpec
	}) (*reply[holt.ResizedComputer], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		resized, err := s.opt.Nouns.Computers.Resize(ctx, ref, in.Body, in.Key)
		return &reply[holt.ResizedComputer]{resized}, err
	})
}
