package control

import (
	"context"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/idempotency"
)

// maxTokenLife is in milliseconds.
const maxTokenLife = 100 * 365 * 24 * 3600_000

// tokens are the tokens as the API has them; see [holt/internal/nouns.TokenStore].
type tokens struct {
	*access.Tokens
	keys *idempotency.Keys
}

// Create makes a token of the tenant of the call. Only this answer has its secret: a repeated call gets the
// token without it.
func (n tokens) Create(ctx context.Context, spec holt.TokenSpec, key string) (holt.NewToken, error) {
	if spec.LifeMS < 0 || spec.LifeMS > maxTokenLife {
		return holt.NewToken{}, holt.Errorf(holt.InvalidArgument, "invalid lifetime %d ms of a token", spec.LifeMS).WithHint("use 0 for a token that does not expire, or at most 100 years")
	}
	secret := ""
	made, err := idempotency.Once(ctx, n.keys, idempotency.Call[holt.Token]{
		Key: key, Method: "token.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (token holt.Token, err error) {
			token, secret, err = n.CreateBound(ctx, holt.TenantOf(ctx), spec.Name, time.Duration(spec.LifeMS)*time.Millisecond, claim.Bind, spec.Scopes...)
			return token, err
		},
		Again: n.Get,
	})
	return holt.NewToken{Token: made, Secret: secret}, err
}

// Delete revokes a token by id or name.
func (n tokens) Delete(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, n.keys, idempotency.Call[struct{}]{
		Key: key, Method: "token.delete", Request: ref, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			t, err := n.Get(ctx, ref)
			if err == nil {
				err = n.Tokens.Delete(ctx, t.ID)
			}
			return none, err
		},
	})
	return err
}
