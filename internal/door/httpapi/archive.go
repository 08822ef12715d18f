package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

func (s *Server) archive(api huma.API) {
	const tag = "archive"
	noun := s.opt.Nouns.Archive

	register(api, describe(http.MethodGet, "/v1/archive", "getArchive", tag, "See what the archive of all workspaces holds"),
		func(ctx context.Context, _ *struct{}) (*reply[holt.Archive], error) {
			a, err := noun.Get(ctx)
			return &reply[holt.Archive]{a}, err
		})

	op := describe(http.MethodPost, "/v1/archive/collect", "collectArchive", tag, "Remove what no workspace needs any more")
	op.Description = "It happens by itself, some time after. Never removes what a workspace, a checkpoint or a fork can reach."
	register(api, op, func(ctx context.Context, in *Keyed) (*reply[holt.Collected], error) {
		c, err := noun.Collect(ctx, in.Key)
		return &reply[holt.Collected]{c}, err
	})

	op = describe(http.MethodPost, "/v1/archive/check", "checkArchive", tag, "Read and verify everything in the archive")
	op.Description = "It changes nothing. The archive is clean when the report has no problems."
	register(api, op, func(ctx context.Context, _ *struct{}) (*reply[holt.ArchiveReport], error) {
		report, err := noun.Check(ctx)
		if report.Problems == nil {
			report.Problems = []string{}
		}
		return &reply[holt.ArchiveReport]{report}, err
	})
}
