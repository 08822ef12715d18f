package holt

import "time"

// Token is an API token without its secret.
type Token struct {
	ID         TokenID    `json:"id"`
	Name       string     `json:"name" doc:"purpose of the token"`
	Tenant     string     `json:"tenant" doc:"tenant that owns what it creates, and whose objects it sees"`
	Scopes     []Scope    `json:"scopes" nullable:"false" doc:"what it may do; empty: everything in its tenant"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" doc:"absent: never"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"to the minute"`

	Rights Rights `json:"-"` // parsed Scopes
}

// Actor returns the caller that uses the token.
func (t Token) Actor() Actor {
	a := Actor{Token: t.ID, Name: t.Name, Tenant: t.Tenant, Rights: t.Rights}
	if t.ExpiresAt != nil {
		a.Expires = *t.ExpiresAt
	}
	return a
}

// TokenSpec describes a token to create in the caller's tenant. Rights beyond the caller's are Forbidden.
type TokenSpec struct {
	Name   string  `json:"name" maxLength:"128" doc:"purpose of the token"`
	Scopes []Scope `json:"scopes,omitempty" maxItems:"64" doc:"admin, read-only (reading from a paused computer wakes it), computer:REF, user:NAME, workspace:REF[:read][:/PATH], port:REF:N; default: everything in the tenant"`
	LifeMS int64   `json:"life_ms,omitempty" minimum:"0" doc:"lifetime, milliseconds; default: unlimited, or that of the creating token"`
}

// NewToken is a new token with its secret. The secret is not stored, so a repeated call with the same idempotency
// key returns the token without it.
type NewToken struct {
	Token
	Secret string `json:"secret,omitempty" doc:"shown only once"`
}
