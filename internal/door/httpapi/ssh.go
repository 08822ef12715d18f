package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
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

func (s *Server) ssh(api huma.API) {
	const tag = "ssh"
	op := describe(http.MethodGet, "/v1/ssh", "getSSHHost", tag, "Get what SSH clients need to know: the host key, and where the gateway listens")
	register(api, op, func(context.Context, *struct{}) (*reply[holt.SSHHost], error) {
		return &reply[holt.SSHHost]{s.opt.Nouns.SSH.Host()}, nil
	})

	op = describe(http.MethodGet, "/v1/computers/{computer}/ssh", "connectSSH", tag, "Connect to the SSH gateway for a computer by WebSocket")
	op.Description = "What an SSH client's ProxyCommand speaks: at the other end is an SSH server that asks for no key, since this call was authenticated, and whose user name is that of a Linux user. " +
		"The messages are those of connectPort. The computer is woken by what the client asks for, not by this."
	op.Responses = map[string]*huma.Response{"101": {Description: "the WebSocket", Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[holt.PortMessage](), true, "")},
	}}}
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		RawRequest
	}) (*huma.StreamResponse, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		if !strings.EqualFold(in.r.Header.Get("Upgrade"), "websocket") {
			return nil, holt.Errorf(holt.InvalidArgument, "this is a WebSocket").WithHint("holt computer ssh-proxy speaks it")
		}
		return s.tunnel(ctx, in.r, func(ctx context.Context) (holt.PortConn, error) { return s.opt.Nouns.SSH.Connect(ctx, ref) }), nil
	})
	s.sshKeys(api)
}

const sshKeysPath = "/v1/ssh-keys"

func (s *Server) sshKeys(api huma.API) {
	const tag = "ssh"
	nouns := s.opt.Nouns.SSHKeys

	register(api, describe(http.MethodGet, sshKeysPath, "listSSHKeys", tag, "List the keys by which SSH clients come in"),
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.SSHKey]], error) {
			all, err := nouns.List(ctx)
			return pageOf(all, func(k holt.SSHKey) string { return string(k.ID) }, *in), err
		})

	op := describe(http.MethodPost, sshKeysPath, "addSSHKey", tag, "Let who has a key come in by SSH")
	op.Description = "With the rights of who adds it: a key that was added with a token has the token's, and ends with it. A tenant may have 1000; those of tokens that have ended go when another is added."
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.SSHKeySpec
	}) (*reply[holt.SSHKey], error) {
		one, err := nouns.Add(ctx, in.Body, in.Key)
		return &reply[holt.SSHKey]{one}, err
	})

	register(api, describe(http.MethodDelete, sshKeysPath+"/{key}", "deleteSSHKey", tag, "Remove a key, and end the connections that came by it"),
		func(ctx context.Context, in *struct {
			Keyed
			ID string `path:"key" maxLength:"128" doc:"id, fingerprint, or a name that only one has"`
		}) (*reply[holt.SSHKey], error) {
			one, err := nouns.Delete(ctx, in.ID, in.Key)
			return &reply[holt.SSHKey]{one}, err
		})
}
