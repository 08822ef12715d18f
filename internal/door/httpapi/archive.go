package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) archive() {
	n := s.opt.Nouns.Archive
	bind(s, api.GetArchive, func(ctx context.Context, _ *api.None) (holt.Archive, error) { return n.Get(ctx) })
	bind(s, api.CollectArchive, func(ctx context.Context, in *api.Keyed) (holt.Collected, error) { return n.Collect(ctx, in.Key) })
	bind(s, api.CheckArchive, func(ctx context.Context, _ *api.None) (holt.ArchiveReport, error) {
		report, err := n.Check(ctx)
		report.Problems = listed(report.Problems)
		return report, err
	})
}

// listed is a list that is [] in JSON if it is empty.
func listed[T any](list []T) []T { return append([]T{}, list...) }
