package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

// listeners leaves out what a process has at one address more than once, as with SO_REUSEPORT: the cursor of a page needs keys that differ.
func listeners(all []holt.Listener) []holt.Listener {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(l holt.Listener) bool {
		key := api.ListPorts.Key(l)
		again := seen[key]
		seen[key] = true
		return again
	})
}

func (s *Server) ports() {
	n := s.opt.Nouns.Ports
	bindList(s, api.ListPorts, func(ctx context.Context, in *api.ComputerList) ([]holt.Listener, error) {
		all, err := n.List(ctx, in.Computer)
		return listeners(all), err
	})
	bindStream(s, api.ConnectPort, func(ctx context.Context, in *api.PortConnect) (*huma.StreamResponse, error) {
		to, r := in.Address(), requestOf(ctx).r
		if err := to.Check(); err != nil {
			return nil, err
		}
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			return nil, holt.Errorf(holt.InvalidArgument, "this is a WebSocket").WithHint("holt computer connect and forward speak it")
		}
		return s.tunnel(ctx, r, func(ctx context.Context) (holt.PortConn, error) { return n.Connect(ctx, in.Computer, to) }), nil
	})
}
