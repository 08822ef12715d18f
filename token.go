package holt

import "time"

// Token is what is known about an API token, never its secret.
type Token struct {
	ID         TokenID    `json:"id"`
	Name       string     `json:"name" doc:"what it is for"`
	Tenant     string     `json:"tenant" doc:"whose what it makes is, and whose things it sees"`
	Scopes     []Scope    `json:"scopes" nullable:"false" doc:"what it may do; none: everything in its tenant"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" doc:"absent: never"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"to the minute"`

	Rights Rights `json:"-"` // what Scopes come to
}

// Actor is who calls with the token.
func (t Token) Actor() Actor {
	a := Actor{Token: t.ID, Name: t.Name, Tenant: t.Tenant, Rights: t.Rights}
	if t.ExpiresAt != nil {
		a.Expires = *t.ExpiresAt
	}
	return a
}

// TokenSpec says what token to make, of the caller's tenant. What is wanted beyond what the caller may do is Forbidden.
type TokenSpec struct {
	Name   string  `json:"name" maxLength:"128" doc:"what it is for"`
	Scopes []Scope `json:"scopes,omitempty" maxItems:"64" doc:"admin, read-only (looking into a computer that sleeps wakes it), computer:REF, user:NAME, workspace:REF[:read][:/PATH], port:REF:N; none: everything in the tenant"`
	LifeMS int64   `json:"life_ms,omitempty" minimum:"0" doc:"for how long, milliseconds; default: for ever, or as long as the token that makes it"`
}

// NewToken is a token that was just made, with its secret. A repeated call with the same idempotency key
// gets it without the secret, which is kept nowhere.
type NewToken struct {
	Token
	Secret string `json:"secret,omitempty" doc:"shown this once"`
}
