package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Secrets are what the proxies of computers add to requests to their hosts; Unsupported where computers share the
// host's network. Nobody gets a value back.
type Secrets interface {
	// List returns a computer's in the order of their names.
	List(ctx context.Context, computer string) ([]holt.ComputerSecret, error)
	// Set makes or replaces one at once. InvalidArgument: it cannot be added to requests, or there are too many.
	Set(ctx context.Context, computer, name string, secret holt.HostSecret) (holt.ComputerSecret, error)
	Delete(ctx context.Context, computer, name, key string) error
}

// OneSecret names a host secret of a computer in a path.
type OneSecret struct {
	OneComputer
	Secret string `path:"secret" maxLength:"64" doc:"name: letters, digits, dots, dashes and underscores"`
}

func (s *Server) secrets(api huma.API) {
	const tag, path = "computers", "/v1/computers/{computer}/secrets"
	nouns := s.opt.Nouns.Secrets

	op := describe(http.MethodGet, path, "listComputerSecrets", tag, "List the host secrets of a computer, without their values")
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Paging
	}) (*reply[holt.Page[holt.ComputerSecret]], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		all, err := nouns.List(ctx, ref)
		return pageOf(all, func(s holt.ComputerSecret) string { return s.Name }, in.Paging), err
	})

	op = describe(http.MethodPut, path+"/{secret}", "setComputerSecret", tag, "Give a computer a host secret, or replace it")
	op.Description = "The proxy of the computer's network adds the value to requests to that host; it never enters the computer, and nobody gets it back. " +
		"It counts at once: for requests that begin then. Programs that run already use the proxy only if they were told of it when they began, which is so while the computer has a secret."
	register(api, op, func(ctx context.Context, in *struct {
		OneSecret
		Body holt.HostSecret
	}) (*reply[holt.ComputerSecret], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := nouns.Set(ctx, ref, in.Secret, in.Body)
		return &reply[holt.ComputerSecret]{one}, err
	})

	op = describe(http.MethodDelete, path+"/{secret}", "deleteComputerSecret", tag, "Take a host secret away from a computer, at once")
	op.DefaultStatus = http.StatusNoContent
	register(api, op, func(ctx context.Context, in *struct {
		OneSecret
		Keyed
	}) (*struct{}, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		return nil, nouns.Delete(ctx, ref, in.Secret, in.Key)
	})
}
