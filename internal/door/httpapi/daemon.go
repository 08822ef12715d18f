package httpapi

import (
	"context"
	"regexp"

	"holt"
	"holt/internal/api"
)

var digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *Server) daemon() {
	n, images := s.opt.Nouns.Daemon, s.opt.Nouns.Images
	bind(s, api.GetHealth, s.health)
	bind(s, api.GetDoctor, func(ctx context.Context, _ *api.None) (holt.Page[holt.Finding], error) {
		findings, err := n.Doctor(ctx)
		return holt.Page[holt.Finding]{Items: listed(findings)}, err
	})
	bindList(s, api.ListImages, func(ctx context.Context, _ *api.Paging) ([]holt.Image, error) { return images.List(ctx) })
	bind(s, api.BootImage, func(ctx context.Context, in *api.BootOf) (holt.Image, error) {
		if _, err := holt.ParseName(in.Image); err != nil && !digestRE.MatchString(in.Image) {
			return holt.Image{}, err
		}
		if in.Body == nil {
			in.Body = &holt.Shape{}
		}
		return images.Boot(ctx, in.Image, *in.Body, in.Key)
	})
	bind(s, api.EndDaemon, func(ctx context.Context, in *api.Down) (holt.DownReport, error) {
		if in.Body == nil {
			in.Body = &holt.DownSpec{}
		}
		if in.Body.Computers == "" {
			in.Body.Computers = holt.DownStop
		}
		report, err := n.Down(ctx, *in.Body, in.Key)
		report.Stopped, report.Kept, report.Unmounted = listed(report.Stopped), listed(report.Kept), listed(report.Unmounted)
		return report, err
	})
}

// health leaves out what is on the host unless an admin asks, and what is in the tenant if a token covers a part of it.
func (s *Server) health(ctx context.Context, _ *api.None) (holt.Health, error) {
	h, err := s.opt.Nouns.Daemon.Health(ctx)
	a, _ := holt.ActorOf(ctx)
	if !a.Admin() {
		h.PID, h.DataDir = 0, ""
	}
	if a.Token != "" && a.Rights.Narrow() {
		h.Running = 0
	}
	return h, err
}
