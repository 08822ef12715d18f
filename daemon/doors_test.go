package daemon_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/client"
)

// TestKeysOfTokens: nobody sees or removes an SSH key that may do more than they, or is another tenant's; one that a token has
// added has its rights.
func TestKeysOfTokens(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	owner := d.client(t, d.token("team-a", "owner"))
	c, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	on := holt.Scope("computer:" + string(c.ID))
	by := map[string]*client.Client{
		"owner": owner, "one": d.client(t, d.token("team-a", "one", on)), "as agent": d.client(t, d.token("team-a", "as agent", on, "user:agent")),
		"looks": d.client(t, d.token("team-a", "looks", "read-only")), "other": d.client(t, d.token("team-b", "other")),
	}
	for _, who := range []string{"owner", "one", "as agent", "other"} {
		if _, err := by[who].SSHKeys.Add(ctx, holt.SSHKeySpec{Key: sshKey(t), Name: who}, ""); err != nil {
			t.Fatal(who, err)
		}
	}
	if _, err := by["looks"].SSHKeys.Add(ctx, holt.SSHKeySpec{Key: sshKey(t)}, ""); holt.CodeOf(err) != holt.Denied {
		t.Error("read-only:", err)
	}
	person := holt.WithActor(ctx, holt.Actor{Tenant: "team-a"})
	if _, err := d.d.Nouns().SSHKeys.Add(person, holt.SSHKeySpec{Key: sshKey(t), Name: "person"}, ""); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]string{
		"owner": "as agent one owner person", "one": "as agent one", "as agent": "as agent", "looks": "", "other": "other",
	} {
		list, err := by[who].SSHKeys.List(ctx)
		var got []string
		for _, k := range list {
			got = append(got, k.Name)
		}
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s sees %q: %v", who, got, err)
		}
	}
	for _, try := range []struct {
		who, key string
		code     holt.Code
	}{
		{"one", "owner", holt.NotFound}, {"one", "person", holt.NotFound}, {"as agent", "one", holt.NotFound}, {"other", "owner", holt.NotFound}, {"looks", "owner", holt.Denied},
		{"one", "as agent", ""}, {"owner", "one", ""}, {"owner", "person", ""}, {"other", "other", ""},
	} {
		if _, err := by[try.who].SSHKeys.Delete(ctx, try.key, ""); holt.CodeOf(err) != try.code {
			t.Errorf("%s deletes %s: %v", try.who, try.key, err)
		}
	}
}

// TestSSHIsGuarded: by SSH a token is its Linux user and no other, reaches its computer and no other, whatever its tenant has, and all of it is
// written down, but for commands.
func TestSSHIsGuarded(t *testing.T) {
	d := up(t, config(t, home(t)))
	door := doorOf(t, d)
	ctx := t.Context()
	owner := door.client(t, door.token("default", "owner"))
	c, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	token, _, err := d.Tokens().CreateFor(ctx, "default", "narrow", 0, holt.Scope("computer:"+string(c.ID)), "user:agent")
	if err != nil {
		t.Fatal(err)
	}
	s := openSSHAs(t, d, holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{})
	if out := s.does("einstein@127.0.0.1", "echo the secret command"); out != "the secret command\n" {
		t.Errorf("%q", out)
	}
	for _, at := range []string{"einstein+root@127.0.0.1", "einstein+0@127.0.0.1", "bohr@127.0.0.1", "nobody@127.0.0.1"} {
		if got := s.ssh(at, "true"); got.status != 255 || !strings.Contains(got.err, "does not cover") {
			t.Errorf("%s: %v", at, got)
		}
	}
	want := []string{"connect einstein user=agent begun", "exec einstein user=agent ok", "exec einstein user=root permission_denied", "exec bohr user=agent permission_denied"}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		entries, err := d.Audit().List(context.WithoutCancel(ctx), holt.AuditSpec{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			if e.Door == "ssh" && e.Actor == "token" && e.Token == token.ID && e.Tenant == "default" && e.Remote != "" {
				got = append(got, e.Op+" "+e.Ref+" "+e.Code)
			}
			if strings.Contains(e.Op+e.Ref+e.Name+e.Made, "secret command") {
				t.Fatalf("a command is written down: %+v", e)
			}
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(one string) bool { return slices.Contains(got, one) })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not among %q", missing, got)
		}
	}
}
