package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"holt"
	"holt/internal/store/db"
)

// S3Schema makes the table of S3 keys. It has no secrets: they are derived from a key in a file.
const S3Schema = `
CREATE TABLE s3_key (
	id      TEXT PRIMARY KEY,
	token   TEXT NOT NULL,
	created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX s3_key_token ON s3_key (token);
CREATE TRIGGER s3_key_ends AFTER DELETE ON token BEGIN DELETE FROM s3_key WHERE token = old.id; END;
`

const mostS3Keys = 100 // of a token

// S3Keys are the keys of clients of S3.
type S3Keys struct {
	*Tokens
	master []byte
}

// OpenS3Keys opens the keys of tokens. file has the key that secrets are derived from, and is made if there is none.
func OpenS3Keys(t *Tokens, file string) (*S3Keys, error) {
	master, err := OpenKeyFile(file, "existing S3 keys")
	if err != nil {
		return nil, fmt.Errorf("open the key of S3 keys: %w", err)
	}
	return &S3Keys{t, master}, nil
}

// Secret derives the secret of a key.
func (k *S3Keys) Secret(id string) string {
	mac := hmac.New(sha256.New, k.master)
	mac.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Create makes a key of a token, by id or a unique name, and calls bind with its id in the transaction that stores it.
//
// Errors: NotFound, Conflict (several tokens have the name), TooMany.
func (k *S3Keys) Create(ctx context.Context, ref string, bind func(tx *db.Tx, id string) error) (holt.S3Key, error) {
	t, err := k.Tokens.Get(ctx, ref)
	if err != nil {
		return holt.S3Key{}, err
	}
	key := holt.S3Key{ID: holt.S3KeyPrefix + rand.Text()[:16], Token: t.ID, TokenName: t.Name, Tenant: t.Tenant, CreatedAt: k.now().UTC()}
	err = k.db.WriteSync(ctx, func(tx *db.Tx) error {
		if err := k.valid(tx, t.ID, key.CreatedAt); err != nil {
			return err
		}
		n := int64(0)
		err := tx.Query(`SELECT count(*) FROM s3_key WHERE token = ?`, []any{t.ID}, func(r *db.Row) error { n = r.Int64(0); return nil })
		if err == nil && n >= mostS3Keys {
			err = holt.Errorf(holt.TooMany, "the token %s has %d S3 keys", t.Name, n).WithHint("delete some: holt token s3-keys shows them")
		}
		if err == nil {
			err = bind(tx, key.ID)
		}
		if err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO s3_key (id, token, created) VALUES (?, ?, ?)`, key.ID, key.Token, key.CreatedAt.UnixNano())
	})
	return key, err
}

// List returns the keys of the caller's tenant, oldest first.
func (k *S3Keys) List(ctx context.Context) ([]holt.S3Key, error) {
	return k.keys(ctx, `WHERE ?1 = '' OR t.tenant = ?1`, holt.Confined(ctx))
}

func (k *S3Keys) keys(ctx context.Context, condition string, args ...any) (list []holt.S3Key, err error) {
	err = k.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT k.id, k.token, t.name, t.tenant, k.created FROM s3_key k JOIN token t ON t.id = k.token `+condition+` ORDER BY k.created, k.id`, args, func(r *db.Row) error {
			list = append(list, holt.S3Key{ID: r.Text(0), Token: holt.TokenID(r.Text(1)), TokenName: r.Text(2), Tenant: r.Text(3), CreatedAt: time.Unix(0, r.Int64(4)).UTC()})
			return nil
		})
	})
	return list, err
}

// Get returns a key of the caller's tenant.
func (k *S3Keys) Get(ctx context.Context, id string) (holt.S3Key, error) {
	list, err := k.keys(ctx, `WHERE k.id = ?2 AND (?1 = '' OR t.tenant = ?1)`, holt.Confined(ctx), id)
	if err == nil && len(list) == 0 {
		err = holt.Errorf(holt.NotFound, "there is no S3 key %q", holt.Clip(id, 80)).WithHint("holt token s3-keys shows all keys")
	}
	if err != nil {
		return holt.S3Key{}, err
	}
	return list[0], nil
}

// Delete removes a key of the caller's tenant.
func (k *S3Keys) Delete(ctx context.Context, id string) error {
	key, err := k.Get(ctx, id)
	if err != nil {
		return err
	}
	return k.db.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM s3_key WHERE id = ?`, key.ID) })
}

// Of returns the token of a key, and the key's secret. Unauthenticated: there is no such key, or its token has expired.
func (k *S3Keys) Of(ctx context.Context, id string) (Token, string, error) {
	var t stored
	err := k.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+columns+` FROM token WHERE id = (SELECT token FROM s3_key WHERE id = ?)`, []any{id}, func(r *db.Row) error { t = scan(r); return nil })
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("check S3 key: %w", err)
	}
	if t.ID == "" || t.ExpiresAt != nil && !k.now().Before(*t.ExpiresAt) {
		return Token{}, "", holt.Errorf(holt.Unauthenticated, "the S3 key is not valid").WithHint("it is unknown or deleted, or its token is revoked or expired")
	}
	return t.Token, k.Secret(id), nil
}

// Used notes that the token was used, after a signature with one of its keys was verified.
func (k *S3Keys) Used(ctx context.Context, token Token) { k.touch(ctx, &token, k.now()) }
