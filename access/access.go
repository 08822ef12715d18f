// Package access holds API tokens: who may come in over TCP.
//
// It is not a policy: in this release a token that is valid may do
// everything, but change the limits of tenants unless it is the default one's. It does not know HTTP.
//
// Format: a secret is "holt_", the 16 characters of the token's id, "_" and
// 52 characters of base 32 (256 random bits). It is shown once, by
// [Tokens.Create]; the table token ([Schema]) keeps the SHA-256 of the whole
// secret. A fast hash is enough, since nobody can guess 256 random bits.
//
// Traps: never log a secret, and never compare one with ==.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"strings"
	"time"
	"unicode"

	"holt"
	"holt/db"
)

// Schema makes the table of this package in the control database. Times are
// nanoseconds since 1970; 0 means never.
const Schema = `
CREATE TABLE token (
	id      TEXT PRIMARY KEY,
	name    TEXT NOT NULL,
	hash    BLOB NOT NULL,    -- SHA-256 of the secret
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	used    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
`

// TenantSchema says whose tokens are.
const TenantSchema = `
ALTER TABLE token ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
`

const (
	prefix   = "holt_"
	idChars  = 16
	keyBytes = 32
	mostName = 128

	// usedEvery is how precisely the last use of a token is kept.
	usedEvery = time.Minute
)

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// secretChars is the length of every secret, bytes.
var secretChars = len(prefix) + idChars + 1 + keyEncoding.EncodedLen(keyBytes)

// Token is what is known about an API token, never its secret.
type Token struct {
	ID         holt.TokenID `json:"id"`
	Name       string       `json:"name" doc:"what it is for"`
	Tenant     string       `json:"tenant" doc:"whose what it makes is"`
	CreatedAt  time.Time    `json:"created_at"`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty" doc:"absent: never"`
	LastUsedAt *time.Time   `json:"last_used_at,omitempty" doc:"to the minute"`
}

// Actor is who calls with the token.
func (t Token) Actor() holt.Actor {
	return holt.Actor{Token: t.ID, Name: t.Name, Tenant: t.Tenant}
}

// Tokens is the store of API tokens.
type Tokens struct {
	db  *db.DB
	now func() time.Time
	held
}

// New returns the tokens of a control database with [Schema] and [TenantSchema].
func New(d *db.DB) *Tokens { return &Tokens{db: d, now: time.Now} }

// Create makes a token and returns it with its secret, which cannot be had
// again. A life of 0 means that it does not expire.
func (t *Tokens) Create(ctx context.Context, name string, life time.Duration) (Token, string, error) {
	return t.CreateFor(ctx, holt.DefaultTenant, name, life)
}

// CreateFor is Create of a token whose computers and jobs are a tenant's.
func (t *Tokens) CreateFor(ctx context.Context, tenant, name string, life time.Duration) (Token, string, error) {
	tenant, err := holt.ParseTenant(tenant)
	if err != nil {
		return Token{}, "", err
	}
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Token{}, "", holt.Errorf(holt.InvalidArgument, "this cannot name a token").
			WithHint("say what it is for in 1 to %d printable characters", mostName)
	}
	if life < 0 {
		return Token{}, "", holt.Errorf(holt.InvalidArgument, "a token cannot live for %s", holt.ShortDuration(life)).WithHint("0 means that it does not expire")
	}
	var key [keyBytes]byte
	rand.Read(key[:]) // never fails, see crypto/rand
	token := Token{ID: holt.NewTokenID(), Name: name, Tenant: tenant, CreatedAt: t.now().UTC()}
	secret := prefix + strings.TrimPrefix(string(token.ID), "tok_") + "_" + keyEncoding.EncodeToString(key[:])
	hash := sha256.Sum256([]byte(secret))
	var expires int64
	if life > 0 {
		at := token.CreatedAt.Add(life)
		token.ExpiresAt, expires = &at, at.UnixNano()
	}
	err = t.db.WriteSync(ctx, func(tx *db.Tx) error {
		return tx.Exec(`INSERT INTO token (id, name, hash, created, expires, tenant) VALUES (?, ?, ?, ?, ?, ?)`,
			token.ID, name, hash[:], token.CreatedAt.UnixNano(), expires, tenant)
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("create token: %w", err)
	}
	return token, secret, nil
}

// List returns all tokens, oldest first, also expired ones.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	list := []Token{}
	err := t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+columns+` FROM token ORDER BY created, id`, nil, func(row *db.Row) error {
			list = append(list, scan(row).Token)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}

// Delete revokes a token at once.
func (t *Tokens) Delete(ctx context.Context, id holt.TokenID) error {
	found := false
	err := t.db.WriteSync(ctx, func(tx *db.Tx) error {
		err := tx.Exec(`DELETE FROM token WHERE id = ?`, id)
		found = tx.Changes() > 0
		return err
	})
	if err != nil {
		return fmt.Errorf("delete token: %w", err)
	}
	if !found {
		return holt.Errorf(holt.NotFound, "there is no token %q", id)
	}
	t.drop(id)
	return nil
}

// Check returns the token of a secret, or an Unauthenticated error, which says
// the same of every wrong secret: that the token is unknown, its key wrong, or
// its time over. How long it takes does not depend on the secret's bytes.
func (t *Tokens) Check(ctx context.Context, secret string) (Token, error) {
	var s stored
	if len(secret) == secretChars && strings.HasPrefix(secret, prefix) {
		err := t.db.Read(ctx, func(tx *db.Tx) error {
			id := "tok_" + secret[len(prefix):len(prefix)+idChars]
			return tx.Query(`SELECT `+columns+` FROM token WHERE id = ?`, []any{id}, func(row *db.Row) error {
				s = scan(row)
				return nil
			})
		})
		if err != nil {
			return Token{}, fmt.Errorf("check token: %w", err)
		}
	}
	// An unknown token is compared with 32 zero bytes, which no secret hashes to.
	hash := sha256.Sum256([]byte(secret))
	now := t.now()
	right := subtle.ConstantTimeCompare(hash[:], s.hash[:]) == 1
	if !right || s.ExpiresAt != nil && !now.Before(*s.ExpiresAt) {
		return Token{}, holt.Errorf(holt.Unauthenticated, "the token is not valid").
			WithHint("it is wrong, was revoked or has expired; the daemon prints its first token when it first serves TCP")
	}
	t.touch(ctx, &s.Token, now)
	return s.Token, nil
}

// known says whether there is such a token.
func (t *Tokens) known(ctx context.Context, id holt.TokenID) (known bool, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT 1 FROM token WHERE id = ?`, []any{id}, func(*db.Row) error { known = true; return nil })
	})
	return known, err
}

// touch keeps when a token was used last. It is no reason to turn a caller away
// that this cannot be written (the host's disk is full): they may come to mend that.
func (t *Tokens) touch(ctx context.Context, token *Token, now time.Time) {
	if token.LastUsedAt != nil && now.Sub(*token.LastUsedAt) < usedEvery {
		return
	}
	used := now.UTC()
	token.LastUsedAt = &used
	_ = t.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE token SET used = ? WHERE id = ?`, used.UnixNano(), token.ID)
	})
}

// stored is a token with the hash of its secret.
type stored struct {
	Token
	hash [sha256.Size]byte
}

const columns = `id, name, hash, created, expires, used, tenant`

func scan(row *db.Row) stored {
	s := stored{Token: Token{
		ID: holt.TokenID(row.Text(0)), Name: row.Text(1), Tenant: row.Text(6), CreatedAt: time.Unix(0, row.Int64(3)).UTC(),
		ExpiresAt: timeOf(row.Int64(4)), LastUsedAt: timeOf(row.Int64(5)),
	}}
	copy(s.hash[:], row.Bytes(2))
	return s
}

func timeOf(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	at := time.Unix(0, ns).UTC()
	return &at
}
