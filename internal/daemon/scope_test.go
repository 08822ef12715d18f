package daemon_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/client"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestScopes is the table of what every route answers to every kind of token about things that are there: allow
// or deny. A new route has no row, and fails here until somebody has looked at what it says and put it there
// (go test ./daemon -run TestScopes -update).
//
// Nothing is really changed: what changes something is called with an idempotency key that another call
// has had, so that it is a conflict as soon as it is allowed.
func TestScopes(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	owner := d.token("default", "owner")
	c := d.client(t, owner)
	ids, names := belongings(t, c, "einstein")
	other, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "bohr"}, "")
	if err != nil {
		t.Fatal(err)
	}
	ids["tenant"], names["tenant"] = "default", "default"
	if _, err := c.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "spent"}, "spent"); err != nil {
		t.Fatal(err)
	}
	kinds := []struct {
		name   string
		scopes []holt.Scope
	}{
		{"tenant", nil}, {"admin", []holt.Scope{"admin"}}, {"read-only", []holt.Scope{"read-only"}}, {"user:agent", []holt.Scope{"user:agent"}}, {"user:root", []holt.Scope{"user:root"}},
		{"computer", []holt.Scope{holt.Scope("computer:" + ids["computer"])}}, {"computer read-only", []holt.Scope{holt.Scope("computer:" + ids["computer"]), "read-only"}},
		{"another computer", []holt.Scope{holt.Scope("computer:" + string(other.ID))}}, {"workspace", []holt.Scope{holt.Scope("workspace:" + ids["workspace"])}},
		{"workspace:read", []holt.Scope{holt.Scope("workspace:" + ids["workspace"] + ":read")}}, {"workspace:/reports", []holt.Scope{holt.Scope("workspace:" + ids["workspace"] + ":/reports")}},
		{"workspace:/else", []holt.Scope{holt.Scope("workspace:" + ids["workspace"] + ":/else")}}, {"port:80", []holt.Scope{holt.Scope("port:" + ids["computer"] + ":80")}},
		{"port:81", []holt.Scope{holt.Scope("port:" + ids["computer"] + ":81")}},
		{"bucket:artifacts:read", []holt.Scope{"bucket:artifacts:read"}}, {"bucket of another prefix", []holt.Scope{"bucket:artifacts:write:else/"}}, {"its bucket", []holt.Scope{holt.Scope("bucket:" + names["bucket"]), "bucket:artifacts"}},
	}
	secrets := make([]string, len(kinds))
	table := "# What a token of each kind gets of each route, about things that are there. Columns:\n"
	for i, k := range kinds {
		secrets[i] = d.token("default", k.name, k.scopes...)
		table += fmt.Sprintf("# %d %s\n", i+1, k.name)
	}
	for _, r := range d.all {
		row := ""
		for i, k := range slices.Backward(kinds) {
			status, body := d.call(r, ids, secrets[i], "spent")
			byName, _ := d.call(r, names, secrets[i], "spent")
			got := "allow"
			if status == 403 {
				got = "deny "
			}
			if (status == 403) != (byName == 403) {
				t.Errorf("%s with %s: %d by id, %d by name", r.id, k.name, status, byName)
			}
			if status == 403 && r.method != http.MethodHead && !strings.Contains(body, `"forbidden"`) || status == 401 || status >= 500 && status != 501 && status != 503 {
				t.Errorf("%s with %s: %d %s", r.id, k.name, status, body)
			}
			row = " " + got + row
		}
		table += fmt.Sprintf("%-26s%s\n", r.id, row)
	}
	golden := filepath.Join("testdata", "scopes.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), table); diff != "" {
		t.Errorf("what tokens may do is not what %s says; look at it, and go test -update:\n%s", golden, diff)
	}
}

// TestTokensNarrow: nobody makes, sees or revokes a token that may do more than they, or that outlives them.
func TestTokensNarrow(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	admin := d.client(t, d.token("default", "admin", "admin"))
	computer, err := admin.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	made := func(c *client.Client, name string, life int64, scopes ...holt.Scope) (*client.Client, holt.NewToken, error) {
		token, err := c.Tokens.Create(ctx, holt.TokenSpec{Name: name, LifeMS: life, Scopes: scopes}, "")
		if err != nil {
			return nil, token, err
		}
		return d.client(t, token.Secret), token, nil
	}
	team, ofTeam, err := made(admin, "team", 3_600_000)
	if err != nil {
		t.Fatal(err)
	}
	one, ofOne, err := made(team, "one", 60_000, "computer:einstein", "user:agent")
	if err != nil || ofOne.Scopes[0] != holt.Scope("computer:"+string(computer.ID)) {
		t.Fatal(ofOne.Scopes, err)
	}
	if _, err := one.Computers.Get(ctx, "einstein"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		by     *client.Client
		life   int64
		scopes []holt.Scope
		code   holt.Code
	}{
		{team, 0, []holt.Scope{"admin"}, holt.Forbidden}, {team, 7_200_000, nil, holt.Forbidden}, {one, 0, nil, holt.Forbidden}, {one, 0, []holt.Scope{"computer:einstein"}, holt.Forbidden},
		{one, 0, []holt.Scope{"computer:einstein", "user:root"}, holt.Forbidden}, {one, 0, []holt.Scope{"computer:bohr", "user:agent"}, holt.Forbidden},
		{one, 0, []holt.Scope{"computer:nobody", "user:agent"}, holt.Forbidden}, {team, 0, []holt.Scope{"computer:nobody"}, holt.NotFound},
		{one, 0, []holt.Scope{"computer:einstein", "user:agent", "read-only"}, ""}, {one, 0, []holt.Scope{"port:einstein:80", "user:agent"}, ""},
		{one, 0, []holt.Scope{"workspace:einstein:read:/reports", "user:agent"}, holt.Forbidden}, {team, 0, []holt.Scope{"repo:site"}, holt.Unsupported},
		{team, 0, []holt.Scope{"bucket:Not A Label"}, holt.InvalidArgument}, {one, 0, []holt.Scope{"bucket:releases", "user:agent"}, holt.Forbidden},
	} {
		_, token, err := made(c.by, "child", c.life, c.scopes...)
		if holt.CodeOf(err) != c.code {
			t.Errorf("%v: %v, want %s", c.scopes, err, c.code)
		}
		if err == nil && (token.ExpiresAt == nil || token.ExpiresAt.After(*ofOne.ExpiresAt)) {
			t.Errorf("%v outlives who made it: %v", c.scopes, token.ExpiresAt)
		}
	}
	all, err := team.Tokens.List(ctx)
	for _, token := range all {
		if token.Name == "admin" {
			t.Error("a token sees one that may do more")
		}
	}
	if err != nil || len(all) < 3 {
		t.Error(all, err)
	}
	if err := team.Tokens.Delete(ctx, "admin", ""); holt.CodeOf(err) != holt.NotFound {
		t.Error("a token revokes one that may do more:", err)
	}
	// With a token go those that it has made, however deep.
	if err := admin.Tokens.Delete(ctx, string(ofTeam.ID), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Computers.Get(ctx, "einstein"); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error("a revoked token's child:", err)
	}
	left, err := admin.Tokens.List(ctx)
	if err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}
