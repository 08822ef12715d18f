package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"holt"
)

// TestSSHKeyOfTwoTenants: with real clients and computers of one name in two tenants, a key that both have added leads
// into neither by that name, and by the tenant or the id into the one that is meant.
func TestSSHKeyOfTwoTenants(t *testing.T) {
	d := up(t, config(t, home(t)))
	door := doorOf(t, d)
	ids := map[string]string{}
	for _, tenant := range []string{"team-a", "team-b"} {
		c := door.client(t, door.token(tenant, "owner"))
		made, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "einstein"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WorkspaceFiles.Write(t.Context(), "einstein", "/whose", holt.WriteSpec{}, strings.NewReader(tenant)); err != nil {
			t.Fatal(err)
		}
		ids[tenant] = string(made.ID)
	}
	s := openSSH(t, d, holt.SSHKeySpec{Tenant: "team-a"})
	if out := s.does("einstein@127.0.0.1", "cat whose"); out != "team-a" {
		t.Errorf("%q", out)
	}
	key, err := os.ReadFile(s.file("key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.client(t, door.token("team-b", "adds")).SSHKeys.Add(t.Context(), holt.SSHKeySpec{Key: string(key)}, ""); err != nil {
		t.Fatal(err)
	}
	cmd := s.program(t.Context(), "ssh", "einstein@127.0.0.1", "cat whose")
	cmd.Args[slices.Index(cmd.Args, "LogLevel=ERROR")] = "LogLevel=INFO" // as ssh has it by itself
	if got := ends(t, cmd); got.status != 255 || got.out != "" || !strings.Contains(got.err, "several tenants: team-a, team-b; say which, as einstein.team-a@HOST") {
		t.Error(got)
	}
	for tenant, id := range ids {
		for _, name := range []string{"einstein." + tenant, id} {
			if out := s.does(name+"@127.0.0.1", "cat whose"); out != tenant {
				t.Errorf("%s: %q", name, out)
			}
		}
		s.copies("scp", "einstein."+tenant+"+agent@127.0.0.1:whose", s.file("copy"))
		if b, err := os.ReadFile(s.file("copy")); err != nil || string(b) != tenant {
			t.Errorf("%q %v", b, err)
		}
	}
}
