package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

func (s *Server) forks(api huma.API) {
	const tag = "workspaces"
	nouns := s.opt.Nouns.Workspaces
	op := describe(http.MethodPost, "/v1/workspaces/{workspace}/fork", "forkWorkspace", tag, "Fork a workspace")
	op.Description = "Each fork is a workspace of its own with everything that was there at the checkpoint, its history too. No content is copied. " +
		"What could not be made says why, beside what could; nothing of it is left."
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.ForkSpec
	}) (*reply[holt.Forked], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		if in.Body.Name != "" {
			if _, err := holt.ParseName(in.Body.Name); err != nil {
				return nil, err
			}
		}
		forked, err := nouns.Fork(ctx, ref, in.Body, in.Key)
		return &reply[holt.Forked]{forked}, err
	})

	op = describe(http.MethodPost, "/v1/workspaces/{workspace}/merge", "mergeWorkspace", tag, "Bring the changes of a fork to a workspace")
	op.Description = "A three-way merge since both were the same, or since the last merge. What both changed, each differently, is left as it is and reported as a conflict; " +
		"the next merge looks at it again, unless it is settled for one side with ours or theirs. The present is checkpointed first; the other workspace is not changed."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.MergeSpec
	}) (*reply[holt.MergeReport], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		if in.Body.From, err = parseRef(in.Body.From); err != nil {
			return nil, err
		}
		for _, paths := range []*holt.OSStrings{&in.Body.Paths, &in.Body.Ours, &in.Body.Theirs} {
			if *paths, err = parsePaths(*paths); err != nil {
				return nil, err
			}
		}
		report, err := nouns.Merge(ctx, ref, in.Body, in.Key)
		return &reply[holt.MergeReport]{report}, err
	})
}
