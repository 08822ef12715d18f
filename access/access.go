// Package access holds API tokens: who may come in over TCP.
//
// It is not a policy: in this release a token that is valid may do
// everything. It does not know HTTP.
//
// Format: a secret is "holt_", the 16 characters of the token's id, "_" and
// 52 characters of base 32 (256 random bits). It is shown once, by
// [Tokens.Create]; the table token keeps the SHA-256 of the whole secret.
// A fast hash is enough, since nobody can guess 256 random bits.
//
// Trap: never log a secret, and never compare one with ==.
package access

import (
	"context"
	"time"

	"holt"
)

// Token is what is known about an API token, never its secret.
type Token struct {
	ID         holt.TokenID `json:"id"`
	Name       string       `json:"name" doc:"what it is for"`
	CreatedAt  time.Time    `json:"created_at"`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty" doc:"absent: never"`
	LastUsedAt *time.Time   `json:"last_used_at,omitempty" doc:"to the minute"`
}

// Tokens is the store of API tokens.
type Tokens struct{}

// Create makes a token and returns it with its secret, which cannot be had
// again. A ttl of 0 means that it does not expire.
func (t *Tokens) Create(ctx context.Context, name string, ttl time.Duration) (Token, string, error) {
	return Token{}, "", holt.Errorf(holt.Unsupported, "not built yet")
}

// List returns all tokens, oldest first.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	return nil, holt.Errorf(holt.Unsupported, "not built yet")
}

// Delete revokes a token.
func (t *Tokens) Delete(ctx context.Context, id holt.TokenID) error {
	return holt.Errorf(holt.Unsupported, "not built yet")
}

// Check returns the token of a secret, or an Unauthenticated error. It takes
// the same time whatever the secret's bytes are.
func (t *Tokens) Check(ctx context.Context, secret string) (Token, error) {
	return Token{}, holt.Errorf(holt.Unauthenticated, "not built yet")
}
