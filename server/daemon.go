package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

func (s *Server) daemon(api huma.API) {
	const tag = "daemon"
	nouns := s.opt.Nouns

	register(api, describe(http.MethodGet, "/v1/health", "getHealth", tag, "Ask whether the daemon answers, and what it is"),
		func(ctx context.Context, _ *struct{}) (*reply[holt.Health], error) {
			h, err := nouns.Daemon.Health(ctx)
			return &reply[holt.Health]{h}, err
		})

	register(api, describe(http.MethodGet, "/v1/doctor", "getDoctor", tag, "Examine the daemon's host"),
		func(ctx context.Context, _ *struct{}) (*reply[holt.Page[holt.Finding]], error) {
			findings, err := nouns.Daemon.Doctor(ctx)
			return &reply[holt.Page[holt.Finding]]{holt.Page[holt.Finding]{Items: append([]holt.Finding{}, findings...)}}, err
		})

	register(api, describe(http.MethodGet, "/v1/images", "listImages", tag, "List templates and whether they are built"),
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Image]], error) {
			all, err := nouns.Images.List(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(i holt.Image) string { return i.Template }, *in), nil
		})

	op := describe(http.MethodPost, "/v1/down", "endDaemon", tag, "End the daemon, its mounts and (unless kept) its computers")
	op.Description = "Answers when computers and mounts have ended; the daemon ends right after."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body *holt.DownSpec
	}) (*reply[holt.DownReport], error) {
		spec := holt.DownSpec{}
		if in.Body != nil {
			spec = *in.Body
		}
		if spec.Computers == "" {
			spec.Computers = holt.DownStop
		}
		report, err := nouns.Daemon.Down(ctx, spec, in.Key)
		for _, list := range []*[]string{&report.Stopped, &report.Kept, &report.Unmounted} {
			if *list == nil {
				*list = []string{}
			}
		}
		return &reply[holt.DownReport]{report}, err
	})
}
