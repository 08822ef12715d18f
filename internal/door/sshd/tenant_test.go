package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"holt"
)

// tells dials and returns the gate's banner.
func (o *door) tells(user string, auth ssh.AuthMethod) (banner string, c *ssh.Client, err error) {
	c, err = ssh.Dial("tcp", o.addr, &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.FixedHostKey(o.hostKey.PublicKey()),
		BannerCallback: func(said string) error { banner += said; return nil }})
	if err == nil {
		o.t.Cleanup(func() { c.Close() })
	}
	return banner, c, err
}

// as returns the actor of a session with a user name.
func (o *door) as(user string, auth ssh.AuthMethod) holt.Actor {
	o.t.Helper()
	banner, c, err := o.tells(user, auth)
	if err != nil || banner != "" {
		o.t.Fatal(user, banner, err)
	}
	if out, err := runs(o.t, c, "here", ""); out != "here" {
		o.t.Fatal(user, out, err)
	}
	o.there.mu.Lock()
	defer o.there.mu.Unlock()
	return o.there.actors[len(o.there.actors)-1]
}

// claimed is a key pair that offers another public key.
type claimed struct {
	ssh.Signer
	public ssh.PublicKey
}

func (c claimed) PublicKey() ssh.PublicKey { return c.public }

// TestKeyOfSeveralTenants: a key of one tenant can be added in another, which reveals nothing about the first. Its owner
// must give the tenant or the computer's id. A client without the private key gets no information.
func TestKeyOfSeveralTenants(t *testing.T) {
	o := openDoor(t)
	ctx := t.Context()
	alices, first := o.key(ctx, holt.SSHKeySpec{Tenant: "team-b", Name: "alice"})
	auth, line := ssh.PublicKeys(alices), string(ssh.MarshalAuthorizedKey(alices.PublicKey()))
	if got := o.as("einstein", auth); got.Tenant != "team-b" {
		t.Errorf("with one record: %+v", got)
	}
	token, secret, err := o.tokens.CreateFor(ctx, "team-a", "robot", 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := o.Keys().Add(holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{Key: line})
	if err != nil {
		t.Fatal("another tenant's record blocks the key:", err)
	}
	if _, err := o.Keys().Add(holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{Key: line}); holt.CodeOf(err) != holt.AlreadyExists {
		t.Error("twice in one tenant:", err)
	}
	for name, want := range map[string]string{
		"einstein":        "on record in several tenants: team-a, team-b; say which, as einstein.team-a@HOST, or",
		"einstein+root":   "on record in several tenants",
		"bohr":            "on record in several tenants", // which one of them may have deleted, and the other has made
		"einstein.team-c": "not on record in the tenant team-c",
	} {
		if banner, _, err := o.tells(name, auth); err == nil || !strings.Contains(banner, want) {
			t.Errorf("%s: %q %v", name, banner, err)
		}
		_, private, _ := ed25519.GenerateKey(rand.Reader)
		other, err := ssh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		if banner, _, err := o.tells(name, ssh.PublicKeys(claimed{other, alices.PublicKey()})); err == nil || banner != "" {
			t.Errorf("%s, who has not the key: %q %v", name, banner, err)
		}
		if banner, _, err := o.tells(name, ssh.Password(secret+"x")); err == nil || banner != "" {
			t.Errorf("%s, with no token: %q %v", name, banner, err)
		}
	}
	const ofB = "cmp_bbbbbbbbbbbbbbbb"
	o.there.of = map[string]string{ofB: "team-b"}
	robot, alice := token.Actor(), holt.Actor{Name: "alice", Tenant: "team-b"}
	for name, want := range map[string]holt.Actor{"einstein.team-a": robot, "einstein.team-b": alice, ofB: alice, ofB + ".team-b+root": alice} {
		if got := o.as(name, auth); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if banner, _, err := o.tells("einstein.team-b", ssh.Password(secret)); err == nil || banner != "" {
		t.Errorf("a token of another tenant: %q %v", banner, err)
	}
	if got := o.as("einstein.team-a", ssh.Password(secret)); got.Tenant != "team-a" {
		t.Errorf("%+v", got)
	}
	if _, err := o.Keys().Delete(ctx, first.Fingerprint); holt.CodeOf(err) != holt.Conflict {
		t.Error("a fingerprint of two records:", err)
	}

	// For the person nothing changes if a tenant adds the person's key.
	if _, err := o.Keys().Add(ctx, holt.SSHKeySpec{Key: line}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]holt.Actor{"einstein": {}, ofB: {}, "einstein.default": {}, "einstein.team-a": robot} {
		if got := o.as(name, auth); !reflect.DeepEqual(got, want) {
			t.Errorf("%s of the person: %+v", name, got)
		}
	}

	// A connection by one record ends only with that record.
	_, goes, err := o.tells("einstein.team-a", auth)
	if err != nil {
		t.Fatal(err)
	}
	_, stays, err := o.tells("einstein.team-b", auth)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Keys().Delete(ctx, string(second.ID)); err != nil {
		t.Fatal(err)
	}
	_ = goes.Wait() // however it was cut
	if out, _ := runs(t, stays, "still", ""); out != "still" {
		t.Errorf("the other tenant's connection ended: %q", out)
	}
}
