package httpapi

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

// SSH is the door of SSH clients.
type SSH interface {
	// Host is what they need to know of it.
	Host() holt.SSHHost
	// Connect returns a connection at whose other end is an SSH server for a computer and the actor of ctx: it asks for no key.
	// It outlives ctx. NotFound.
	Connect(ctx context.Context, computer string) (holt.PortConn, error)
}

// SSHKeys are the keys by which SSH clients come in: of an actor those of its tenant, else all.
type SSHKeys interface {
	List(ctx context.Context) ([]holt.SSHKey, error)
	// Add puts one on record, with the rights of who calls. InvalidArgument, AlreadyExists, TooMany.
	Add(ctx context.Context, spec holt.SSHKeySpec, key string) (holt.SSHKey, error)
	// Delete removes one by its id, fingerprint or name, and ends what came by it. NotFound, Conflict: several have the name.
	Delete(ctx context.Context, ref, key string) (holt.SSHKey, error)
}

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
