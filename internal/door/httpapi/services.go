package httpapi

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) services() {
	n := s.opt.Nouns.Services
	bind(s, api.AddService, func(ctx context.Context, in *api.ComputerBody[holt.ServiceSpec]) (holt.Service, error) {
		return n.Add(ctx, in.Computer, in.Body, in.Key)
	})
	bindList(s, api.ListServices, func(ctx context.Context, in *api.ComputerList) ([]holt.Service, error) {
		return n.List(ctx, in.Computer)
	})
	bind(s, api.GetService, func(ctx context.Context, in *api.OneService) (holt.Service, error) {
		return n.Get(ctx, in.Computer, in.Service)
	})
	for verb, e := range api.ServiceVerbs {
		bind(s, e, func(ctx context.Context, in *api.ServiceKeyed) (holt.Service, error) {
			return n.Do(ctx, in.Computer, in.Service, verb, in.Key)
		})
	}
	bindStream(s, api.ServiceLogs, func(ctx context.Context, in *api.ServiceLog) (*huma.StreamResponse, error) {
		return s.log(ctx, in.Follow, func(ctx context.Context, w *rawWriter) error {
			return n.Logs(ctx, in.Computer, in.Service, holt.ServiceLogQuery{Lines: in.Lines, Follow: in.Follow}, w)
		}), nil
	})
}
