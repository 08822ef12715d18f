package httpapi

import (
	"context"
	"net/http"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneToken names a token in a path.
type OneToken struct {
	Token string `path:"token" maxLength:"128" doc:"id, or a name that only one token has"`
}

func (s *Server) tokens(api huma.API) {
	const tag, path = "tokens", "/v1/tokens"
	nouns := s.opt.Nouns.Tokens
	op := describe(http.MethodPost, path, "createToken", tag, "Make a token")
	op.DefaultStatus = http.StatusCreated
	op.Description = "The answer has its secret, which is not kept and cannot be had again: a repeated call with the same idempotency key gets the token without it (revoke it then, and make another). " +
		"Scopes say what it may do: admin (what is the host's, and for every tenant), read-only (changes nothing; looking into a computer, as at its files, services and ports, wakes a paused one and starts a stopped one), computer:REF, user:NAME (only as this Linux user), workspace:REF[:read][:/PATH], port:REF:N (connections to one port). " +
		"Without any it may do everything in its tenant; with some of computer, workspace and port it reaches these and nothing else. It can do no more, and lives no longer, than the token that makes it, and is revoked with that. " +
		"An admin makes tokens of other tenants with the header Holt-Tenant."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.TokenSpec
	}) (*reply[holt.NewToken], error) {
		made, err := nouns.Create(ctx, in.Body, in.Key)
		return &reply[holt.NewToken]{made}, err
	})

	op = describe(http.MethodGet, path, "listTokens", tag, "List tokens, oldest first")
	op.Description = "Also those that have expired: the newest 1000 of a tenant are kept for a week, and go when another is made. They do not count towards the 1000 that a tenant may have."
	register(api, op,
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Token]], error) {
			all, err := nouns.List(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(t holt.Token) string {
				return t.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000") + string(t.ID)
			}, *in), nil
		})

	register(api, describe(http.MethodGet, path+"/{token}", "getToken", tag, "Get a token, without its secret"),
		func(ctx context.Context, in *OneToken) (*reply[holt.Token], error) {
			ref, err := parseToken(in.Token)
			if err != nil {
				return nil, err
			}
			t, err := nouns.Get(ctx, ref)
			return &reply[holt.Token]{t}, err
		})

	op = describe(http.MethodDelete, path+"/{token}", "deleteToken", tag, "Revoke a token")
	op.Description = "At once, with the tokens that it has made and with every call and stream of theirs that goes on."
	register(api, op, func(ctx context.Context, in *struct {
		OneToken
		Keyed
	}) (*noContent, error) {
		ref, err := parseToken(in.Token)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Delete(ctx, ref, in.Key)
	})
}

// parseToken checks a token's name or id at the door. Who gives a secret by mistake does not find it in an error or a log.
func parseToken(s string) (string, error) {
	if strings.HasPrefix(s, "holt_") {
		return "", holt.Errorf(holt.InvalidArgument, "this is a token's secret, and neither its id nor its name").WithHint("holt token list shows ids; revoke it if others may have seen it")
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", holt.Errorf(holt.InvalidArgument, "this cannot name a token")
	}
	return s, nil
}
