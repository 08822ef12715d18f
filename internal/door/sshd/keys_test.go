package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
	"holt/internal/store/db"
)

// publicKey returns the line of a new public key.
func publicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(key))
}

// TestKeysOfGoneTokensMakeRoom: the keys of an expired or revoked token do not count towards the limit, do not block the
// same keys, and are deleted when the next key is added. Those of valid tokens are kept.
func TestKeysOfGoneTokensMakeRoom(t *testing.T) {
	o := openDoor(t)
	keys, ctx := o.Keys(), t.Context()
	made := func(life time.Duration) access.Token {
		t.Helper()
		token, _, err := o.tokens.CreateFor(ctx, "team-a", "robot", life)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	add := func(token access.Token, line string) error {
		_, err := keys.Add(holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{Key: line})
		return err
	}
	counts := func(want int) {
		t.Helper()
		if all, err := keys.list(ctx, ``); err != nil || len(all) != want {
			t.Fatalf("%d keys are on record, not %d; %v", len(all), want, err)
		}
	}
	person := holt.SSHKeySpec{Key: publicKey(t)}
	if _, err := keys.Add(ctx, person); err != nil {
		t.Fatal(err)
	}
	stays := made(0)
	for name, end := range map[string]func(access.Token){
		"expired": func(token access.Token) { keys.now = func() time.Time { return *token.ExpiresAt } },
		"revoked": func(token access.Token) {
			if err := o.tokens.Delete(ctx, token.ID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		token, line := made(time.Hour), publicKey(t)
		keys.now = time.Now
		if err := add(token, line); err != nil {
			t.Fatal(err)
		}
		err := keys.db.Write(ctx, func(tx *db.Tx) error {
			return tx.Exec(`WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
				INSERT INTO ssh_key SELECT id || n, name, CAST(n AS BLOB), tenant, token, agent, created, used FROM ssh_key, n WHERE token = ?`, mostKeys, token.ID)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := add(stays, publicKey(t)); holt.CodeOf(err) != holt.TooMany {
			t.Fatalf("%s: one key too many: %v", name, err)
		}
		end(token)
		if err := add(stays, line); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		counts(2)
		if err := keys.db.Write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM ssh_key WHERE token = ?`, stays.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keys.Add(ctx, person); holt.CodeOf(err) != holt.AlreadyExists {
		t.Error("the person's key is deleted:", err)
	}
}
