// Package access authenticates callers over TCP by API tokens, and limits rates and numbers of calls.
//
// It does not check what a token may do: package authz does. It does not know HTTP.
//
// Format: a secret is "holt_", the 16 characters of the token's id, "_" and
// 52 characters of base 32 (256 random bits). It is shown once, by
// [Tokens.Create]; the table token ([Schema]) has the SHA-256 of the whole
// secret. A fast hash is enough, since 256 random bits cannot be guessed.
//
// Traps: never log a secret, and never compare one with ==.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"holt"
	"holt/internal/store/db"
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
	used    INTEGER NOT NULL DEFAULT 0,
	tenant  TEXT NOT NULL,
	scopes  TEXT NOT NULL,    -- JSON of []holt.Scope
	maker   TEXT NOT NULL     -- id of the token that made it; '' none
) WITHOUT ROWID;
`

const (
	prefix   = "holt_"
	idChars  = 16
	keyBytes = 32
	mostName = 128

	// mostTokens bounds the valid tokens of a tenant, and the expired ones that are kept.
	mostTokens = 1000

	// expiredKept is how long an expired token is kept.
	expiredKept = 7 * 24 * time.Hour

	// usedEvery is the precision of a token's last use.
	usedEvery = time.Minute
)

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// secretChars is the length of every secret, bytes.
var secretChars = len(prefix) + idChars + 1 + keyEncoding.EncodedLen(keyBytes)

// Token is the record of an API token, without its secret.
type Token = holt.Token

// Tokens is the store of API tokens.
type Tokens struct {
	db  *db.DB
	now func() time.Time
	held
}

// New returns the tokens of a control database with [Schema].
func New(d *db.DB) *Tokens { return &Tokens{db: d, now: time.Now} }

// Create makes a token of the default tenant without scopes, and returns it with its secret, which
// cannot be retrieved again. A token with a life of 0 does not expire.
func (t *Tokens) Create(ctx context.Context, name string, life time.Duration) (Token, string, error) {
	return t.CreateFor(ctx, holt.DefaultTenant, name, life)
}

// CreateFor is Create for a tenant. The token may do everything in the tenant or, with scopes, what they permit.
//
// Errors: InvalidArgument, Unsupported (a scope of a later release), TooMany, Unauthenticated (the caller's token
// is revoked or has expired).
func (t *Tokens) CreateFor(ctx context.Context, tenant, name string, life time.Duration, scopes ...holt.Scope) (Token, string, error) {
	return t.CreateBound(ctx, tenant, name, life, unbound, scopes...)
}

// CreateBound is CreateFor, and calls bind with the token's id in the transaction that stores the token.
func (t *Tokens) CreateBound(ctx context.Context, tenant, name string, life time.Duration, bind func(tx *db.Tx, id string) error, scopes ...holt.Scope) (Token, string, error) {
	token, secret, err := t.make(ctx, tenant, name, life, scopes)
	if err == nil {
		err = t.store(ctx, token, secret, bind)
	}
	if err != nil {
		return Token{}, "", err
	}
	return token, secret, nil
}

// CreateFirst makes an admin token that does not expire. It calls keep with the secret before it stores the token. If
// keep fails no token is stored.
func (t *Tokens) CreateFirst(ctx context.Context, name string, keep func(secret string) error) error {
	token, secret, err := t.make(ctx, holt.DefaultTenant, name, 0, []holt.Scope{"admin"})
	if err == nil {
		err = keep(secret)
	}
	if err == nil {
		err = t.store(ctx, token, secret, unbound)
	}
	return err
}

func unbound(*db.Tx, string) error { return nil }

// make returns a token that is not stored yet, and its secret.
func (t *Tokens) make(ctx context.Context, tenant, name string, life time.Duration, scopes []holt.Scope) (token Token, secret string, err error) {
	if tenant, err = holt.ParseTenant(tenant); err != nil {
		return token, "", err
	}
	rights, err := holt.ParseScopes(scopes)
	if err != nil {
		return token, "", err
	}
	if rights.Admin && tenant != holt.DefaultTenant {
		return token, "", holt.Errorf(holt.InvalidArgument, "an admin token belongs to the tenant %s", holt.DefaultTenant).
			WithHint("leave the tenant out: an admin can act for every tenant")
	}
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return token, "", holt.Errorf(holt.InvalidArgument, "invalid token name").
			WithHint("a name has 1 to %d bytes of printable characters", mostName)
	}
	if life < 0 {
		return token, "", holt.Errorf(holt.InvalidArgument, "invalid lifetime %s of a token", holt.ShortDuration(life)).WithHint("give a positive duration, or 0 for a token that does not expire")
	}
	token = Token{ID: holt.NewTokenID(), Name: name, Tenant: tenant, Scopes: rights.Scopes(), Rights: rights, CreatedAt: t.now().UTC()}
	if by, _ := holt.ActorOf(ctx); life > 0 || !by.Expires.IsZero() {
		at := token.CreatedAt.Add(life)
		if life == 0 || !by.Expires.IsZero() && at.After(by.Expires) { // a token expires no later than its maker
			at = by.Expires
		}
		token.ExpiresAt = &at
	}
	var key [keyBytes]byte
	rand.Read(key[:]) // never fails, see crypto/rand
	return token, prefix + strings.TrimPrefix(string(token.ID), "tok_") + "_" + keyEncoding.EncodeToString(key[:]), nil
}

// store stores a token, unless its maker is no longer valid or its tenant has too many.
func (t *Tokens) store(ctx context.Context, token Token, secret string, bind func(tx *db.Tx, id string) error) error {
	by, _ := holt.ActorOf(ctx)
	hash := sha256.Sum256([]byte(secret))
	scopes, err := json.Marshal(token.Scopes)
	if err != nil {
		return err
	}
	var expires int64
	if token.ExpiresAt != nil {
		expires = token.ExpiresAt.UnixNano()
	}
	err = t.db.WriteSync(ctx, func(tx *db.Tx) error {
		if err := t.valid(tx, by.Token, token.CreatedAt); err != nil {
			return err
		}
		if err := room(tx, token.Tenant, token.CreatedAt); err != nil {
			return err
		}
		if err := bind(tx, string(token.ID)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO token (id, name, hash, created, expires, tenant, scopes, maker) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			token.ID, token.Name, hash[:], token.CreatedAt.UnixNano(), expires, token.Tenant, string(scopes), by.Token)
	})
	if err != nil {
		return fmt.Errorf("create token: %w", err)
	}
	return nil
}

// room returns TooMany if a tenant has mostTokens valid tokens. It deletes tokens that expired more than expiredKept ago,
// and the oldest beyond mostTokens expired ones. An expired token that made a valid one stays, so that it can still be
// revoked with the tokens that it made.
func room(tx *db.Tx, tenant string, now time.Time) error {
	err := tx.Exec(`DELETE FROM token WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM token m WHERE m.maker = token.id AND (m.expires = 0 OR m.expires > ?3)) AND (expires BETWEEN 1 AND ?2 OR id IN
		(SELECT id FROM token WHERE tenant = ?1 AND expires BETWEEN 1 AND ?3 ORDER BY expires DESC, id LIMIT -1 OFFSET ?4))`,
		tenant, now.Add(-expiredKept).UnixNano(), now.UnixNano(), mostTokens)
	if err != nil {
		return err
	}
	return tx.Query(`SELECT count(*) FROM token WHERE tenant = ? AND (expires = 0 OR expires > ?)`, []any{tenant, now.UnixNano()}, func(row *db.Row) error {
		if row.Int64(0) < mostTokens {
			return nil
		}
		return holt.Errorf(holt.TooMany, "the tenant %s has %d tokens that have not expired", tenant, mostTokens).WithHint("revoke tokens that are no longer used: holt token list")
	})
}

// valid returns Unauthenticated if the token that makes another is revoked or has expired. It is called in the
// transaction that stores the other: a revocation deletes only the tokens that are stored by then. "" is a caller
// without a token.
func (t *Tokens) valid(tx *db.Tx, id holt.TokenID, now time.Time) error {
	if id == "" {
		return nil
	}
	valid := false
	err := tx.Query(`SELECT expires FROM token WHERE id = ?`, []any{id}, func(row *db.Row) error {
		end := row.Int64(0)
		valid = end == 0 || now.UnixNano() < end
		return nil
	})
	if err == nil && !valid {
		err = ended("is revoked or has expired")
	}
	return err
}

// List returns the tokens of the caller's tenant, oldest first, including expired ones that are kept.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	list := []Token{}
	err := t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+columns+` FROM token WHERE ?1 = '' OR tenant = ?1 ORDER BY created, id`, []any{holt.Confined(ctx)}, func(row *db.Row) error {
			list = append(list, scan(row).Token)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}

// Get returns a token by id, or by a unique name.
//
// Errors: NotFound, Conflict (several have the name).
func (t *Tokens) Get(ctx context.Context, ref string) (Token, error) {
	all, err := t.List(ctx)
	if err != nil {
		return Token{}, err
	}
	var found []Token
	for _, one := range all {
		if string(one.ID) == ref {
			return one, nil
		}
		if one.Name == ref {
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
		return Token{}, holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(ref, 80)).WithHint("holt token list shows all tokens")
	case 1:
		return found[0], nil
	}
	return Token{}, holt.Errorf(holt.Conflict, "%d tokens have the name %q", len(found), holt.Clip(ref, 80)).WithHint("use the id of one: holt token list shows ids")
}

// Delete revokes a token and, recursively, the tokens that it made. It ends their streams.
func (t *Tokens) Delete(ctx context.Context, id holt.TokenID) error {
	var gone []holt.TokenID
	err := t.db.WriteSync(ctx, func(tx *db.Tx) error {
		return tx.Query(`DELETE FROM token WHERE id IN (WITH RECURSIVE made (id) AS (
			SELECT id FROM token WHERE id = ?1 AND (?2 = '' OR tenant = ?2) UNION SELECT token.id FROM token JOIN made ON token.maker = made.id) SELECT id FROM made) RETURNING id`,
			[]any{id, holt.Confined(ctx)}, func(row *db.Row) error {
				gone = append(gone, holt.TokenID(row.Text(0)))
				return nil
			})
	})
	if err != nil {
		return fmt.Errorf("delete token: %w", err)
	}
	if len(gone) == 0 {
		return holt.Errorf(holt.NotFound, "there is no token %q", id).WithHint("holt token list shows all tokens")
	}
	for _, id := range gone {
		t.drop(id)
	}
	return nil
}

// Check returns the token of a secret, or an Unauthenticated error, which is
// the same for an unknown token, a wrong key and an expired token. The time
// that it takes does not depend on the secret's bytes.
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
			WithHint("it is unknown, revoked or expired; the admin's token is in the daemon's data directory, file token")
	}
	t.touch(ctx, &s.Token, now)
	return s.Token, nil
}

// known reports whether the token is stored.
func (t *Tokens) known(ctx context.Context, id holt.TokenID) (known bool, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT 1 FROM token WHERE id = ?`, []any{id}, func(*db.Row) error { known = true; return nil })
	})
	return known, err
}

// touch records the last use of a token. It ignores errors: if the host's disk
// is full the caller must still get in to free space.
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

const columns = `id, name, hash, created, expires, used, tenant, scopes`

func scan(row *db.Row) stored {
	s := stored{Token: Token{
		ID: holt.TokenID(row.Text(0)), Name: row.Text(1), Tenant: row.Text(6), CreatedAt: time.Unix(0, row.Int64(3)).UTC(),
		ExpiresAt: timeOf(row.Int64(4)), LastUsedAt: timeOf(row.Int64(5)),
	}}
	copy(s.hash[:], row.Bytes(2))
	err := json.Unmarshal(row.Bytes(7), &s.Scopes)
	if err == nil {
		s.Rights, err = holt.ParseScopes(s.Scopes)
	}
	if err != nil { // the scopes cannot be read: the token may do nothing
		s.Rights = holt.Rights{ReadOnly: true, Computers: []holt.ComputerID{""}}
	}
	return s
}

func timeOf(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	at := time.Unix(0, ns).UTC()
	return &at
}
