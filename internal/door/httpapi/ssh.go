package httpapi

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) ssh() {
	n, keys := s.opt.Nouns.SSH, s.opt.Nouns.SSHKeys
	bind(s, api.GetSSHHost, func(context.Context, *api.None) (holt.SSHHost, error) { return n.Host(), nil })
	bindStream(s, api.ConnectSSH, func(ctx context.Context, in *api.OneComputer) (*huma.StreamResponse, error) {
		r := requestOf(ctx).r
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			return nil, holt.Errorf(holt.InvalidArgument, "this call must be a WebSocket").WithHint("holt computer ssh-proxy opens one")
		}
		return s.tunnel(ctx, r, func(ctx context.Context) (holt.PortConn, error) { return n.Connect(ctx, in.Computer) }), nil
	})
	bindList(s, api.ListSSHKeys, func(ctx context.Context, _ *api.Paging) ([]holt.SSHKey, error) { return keys.List(ctx) })
	bind(s, api.AddSSHKey, func(ctx context.Context, in *api.Body[holt.SSHKeySpec]) (holt.SSHKey, error) {
		return keys.Add(ctx, in.Body, in.Key)
	})
	bind(s, api.DeleteSSHKey, func(ctx context.Context, in *api.SSHKeyKeyed) (holt.SSHKey, error) {
		return keys.Delete(ctx, in.ID, in.Key)
	})
}
