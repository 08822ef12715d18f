package httpapi

import (
	"context"
	"net/http"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

var digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

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
			return pageOf(all, func(i holt.Image) string { return i.Template + " " + i.Digest }, *in), nil
		})

	op := describe(http.MethodPost, "/v1/images/{image}/boot", "bootImage", tag, "Boot an image, and keep that for new computers to go on from")
	op.Description = "Answers when everything is started and kept, at once if it is already. Unavailable says which service of the template did not come up; " +
		"the image stays then, and its computers boot. Unsupported by an engine that cannot keep machines."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Image string `path:"image" maxLength:"64" doc:"a template, or the digest of an image"`
		Body  *holt.Shape
	}) (*reply[holt.Image], error) {
		if !digestRE.MatchString(in.Image) {
			if _, err := holt.ParseName(in.Image); err != nil {
				return nil, err
			}
		}
		shape := holt.Shape{}
		if in.Body != nil {
			shape = *in.Body
		}
		image, err := nouns.Images.Boot(ctx, in.Image, shape, in.Key)
		return &reply[holt.Image]{image}, err
	})

	op = describe(http.MethodPost, "/v1/down", "endDaemon", tag, "End the daemon, its mounts and (unless kept) its computers")
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
