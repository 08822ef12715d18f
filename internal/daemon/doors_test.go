package daemon_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/client"
	"holt/internal/door/httpapi"
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
	if _, err := by["looks"].SSHKeys.Add(ctx, holt.SSHKeySpec{Key: sshKey(t)}, ""); holt.CodeOf(err) != holt.Forbidden {
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
		{"one", "owner", holt.NotFound}, {"one", "person", holt.NotFound}, {"as agent", "one", holt.NotFound}, {"other", "owner", holt.NotFound}, {"looks", "owner", holt.Forbidden},
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
	want := []string{"connect einstein user=agent begun", "exec einstein user=agent ok", "exec einstein user=root forbidden", "exec bohr user=agent forbidden"}
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

// TestTicketsAreTheirMakers: a ticket calls for the tenant for which an admin made it, whatever its holder says, and with no more rights than the
// token has.
func TestTicketsAreTheirMakers(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	if _, err := d.client(t, d.token("team-a", "owner")).Computers.Create(t.Context(), holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	const path = "/v1/computers/einstein/terminals/main/attach?open=true"
	send := func(method, path, tenant string, body io.Reader, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.base+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if tenant != "" {
			r.Header.Set(httpapi.TenantHeader, tenant)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	admin, looks := d.token("default", "root", "admin"), d.token("team-a", "looks", "read-only")
	for _, c := range []struct {
		token, tenant, shown string
		status               int
	}{
		{admin, "team-a", "", 101}, {admin, "team-a", "default", 101}, {admin, "", "", 404}, {admin, "", "team-a", 404}, {looks, "", "", 403}, {d.token("team-b", "other"), "", "", 404},
	} {
		made := send("POST", "/v1/tickets", c.tenant, strings.NewReader(`{"path":"`+path+`"}`), "Authorization", "Bearer "+c.token, "Content-Type", "application/json")
		var ticket holt.Ticket
		if err := json.NewDecoder(made.Body).Decode(&ticket); err != nil || made.StatusCode != 201 {
			t.Fatal(made.Status, err)
		}
		resp := send("GET", path, c.shown, nil, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Protocol", "holt, "+ticket.Protocol)
		if resp.StatusCode != c.status {
			t.Errorf("made for %q, shown for %q: %s, want %d", c.tenant, c.shown, resp.Status, c.status)
		}
	}
}

// TestEventsAreATenants: a token is told of its tenant's things and of no other's, of workspaces too that no computer has.
func TestEventsAreATenants(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	a, b := d.client(t, d.token("team-a", "a")), d.client(t, d.token("team-b", "b"))
	for _, c := range []*client.Client{a, b} {
		if _, err := c.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	point, err := a.History.Checkpoint(ctx, "data", holt.CheckpointSpec{Name: "mine"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Workspaces.Delete(ctx, "data", ""); err != nil {
		t.Fatal(err)
	}
	told := func(c *client.Client) (all []string) {
		err := c.Events.Follow(ctx, holt.EventQuery{}, func(e holt.Event) error {
			if e.Kind != holt.EventReady {
				all = append(all, string(e.Kind)+" "+e.Name+" "+e.Tenant)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return all
	}
	if got := told(b); !slices.Equal(got, []string{"workspace.created data team-b"}) {
		t.Errorf("b is told %q", got)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // checkpoints are told a little later
		got := told(a)
		slices.Sort(got)
		if slices.Contains(got, "workspace.created data team-a") && slices.Contains(got, "workspace.deleted data team-a") && !slices.ContainsFunc(got, func(one string) bool { return !strings.HasSuffix(one, " team-a") }) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a is told %q of %s", got, point.Name)
		}
	}
	if got := told(b); len(got) != 1 {
		t.Errorf("b is told %q", got)
	}
}

// TestUploadsStayBeneath: a token for a directory sends files there in pieces, and nowhere else, whatever links there are; it sees no other uploads.
func TestUploadsStayBeneath(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	owner := d.client(t, d.token("default", "owner"))
	ws, err := owner.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []holt.OSString{"/reports", "/else"} {
		if _, err := owner.WorkspaceFiles.Mkdir(ctx, "data", holt.MkdirSpec{Path: dir}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := owner.WorkspaceFiles.Symlink(ctx, "data", holt.SymlinkSpec{Path: "/reports/out", Target: "/else"}, ""); err != nil {
		t.Fatal(err)
	}
	begin := func(c *client.Client, path holt.OSString, auto bool) (holt.Upload, error) {
		return c.Uploads.Create(ctx, holt.UploadSpec{Workspace: "data", Path: path, Size: 5, AutoCommit: auto}, "")
	}
	elsewhere, err := begin(owner, "/else/a", false)
	if err != nil {
		t.Fatal(err)
	}
	beneath := d.client(t, d.token("default", "reports", holt.Scope("workspace:"+string(ws.ID)+":/reports")))
	looks := d.client(t, d.token("default", "looks", holt.Scope("workspace:"+string(ws.ID)+":read:/reports")))
	if _, err := begin(beneath, "/else/b", false); holt.CodeOf(err) != holt.Forbidden {
		t.Error("elsewhere:", err)
	}
	if _, err := begin(looks, "/reports/b", false); holt.CodeOf(err) != holt.Forbidden {
		t.Error("read-only:", err)
	}
	if _, err := beneath.Uploads.Append(ctx, elsewhere.ID, 0, "", strings.NewReader("stray")); holt.CodeOf(err) != holt.Forbidden {
		t.Error("another's:", err)
	}
	for path, ok := range map[holt.OSString]bool{"/reports/whole": true, "/reports/out/escaped": false} {
		for _, auto := range []bool{false, true} {
			u, err := begin(beneath, path, auto)
			if err != nil {
				t.Fatal(path, err)
			}
			if _, err = beneath.Uploads.Append(ctx, u.ID, 0, "", strings.NewReader("hello")); err == nil && !auto {
				_, err = beneath.Uploads.Commit(ctx, u.ID, holt.UploadCommit{})
			}
			if ok != (err == nil) {
				t.Errorf("%s, auto %v: %v", path, auto, err)
			}
		}
	}
	if got, err := owner.WorkspaceFiles.List(ctx, "data", "/else", holt.PageSpec{Limit: 10}); err != nil || len(got.Items) != 0 {
		t.Errorf("in the other directory: %v %v", got.Items, err)
	}
	for c, want := range map[*client.Client]bool{beneath: false, looks: false, owner: true} {
		all, err := c.Uploads.List(ctx)
		if err != nil || len(all) < 4 || slices.ContainsFunc(all, func(u holt.Upload) bool { return u.ID == elsewhere.ID }) != want {
			t.Errorf("%d uploads are seen, the other among them must be %v: %v", len(all), want, err)
		}
	}
}

// TestUploadFollowsItsComputer: a token for one computer renames it while its last bytes wait, and another gets the name: the other gets no file.
func TestUploadFollowsItsComputer(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	owner := d.client(t, d.token("default", "owner"))
	c, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	one := d.client(t, d.token("default", "one", holt.Scope("computer:"+string(c.ID))))
	const path, size = "/home/agent/sent", 256<<10 + 1
	u, err := one.Uploads.Create(ctx, holt.UploadSpec{Computer: "einstein", Path: path, Size: size, AutoCommit: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	body, last := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := one.Uploads.Append(ctx, u.ID, 0, "", body)
		sent <- err
	}()
	if _, err := last.Write(make([]byte, size-1)); err != nil {
		t.Fatal(err)
	}
	for u.Offset == 0 { // then it has been asked whether it may
		select {
		case err := <-sent:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
		if u, err = owner.Uploads.Get(ctx, u.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.Computers.Update(ctx, "einstein", holt.ComputerUpdate{Name: "renamed"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Computers.Update(ctx, "bohr", holt.ComputerUpdate{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Write(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	last.Close()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if info, err := owner.Files.Stat(ctx, "renamed", path); err != nil || info.Size != size {
		t.Errorf("in its computer: %+v, %v", info, err)
	}
	if _, err := owner.Files.Stat(ctx, "einstein", path); holt.CodeOf(err) != holt.NotFound {
		t.Error("in the other:", err)
	}
}

// TestRevokedTokenHearsNoMore: events that a token follows, and an SSH connection that it has by the API, end with it.
func TestRevokedTokenHearsNoMore(t *testing.T) {
	dm := up(t, config(t, home(t)))
	d := doorOf(t, dm)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stays := d.client(t, d.token("default", "stays"))
	if _, err := stays.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	token, secret, err := dm.Tokens().CreateFor(ctx, "default", "goes", 0)
	if err != nil {
		t.Fatal(err)
	}
	goes := d.client(t, secret)
	began, ended := make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- goes.Events.Follow(ctx, holt.EventQuery{Follow: true}, func(e holt.Event) error {
			if e.Kind == holt.EventReady {
				close(began)
			}
			return nil
		})
	}()
	conn, err := goes.SSH.Connect(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := make([]byte, 8)
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "SSH-2.0-" {
		t.Fatalf("%q %v", hello, err)
	}
	go func() {
		_, err := io.Copy(io.Discard, conn)
		if err == nil {
			err = holt.Errorf(holt.Unauthenticated, "closed") // whichever way it was cut
		}
		ended <- err
	}()
	<-began
	if err := stays.Tokens.Delete(ctx, string(token.ID), ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-ended:
			if err == nil || ctx.Err() != nil {
				t.Error("it ended as if nothing were:", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("something goes on")
		}
	}
	if err := goes.Events.Follow(ctx, holt.EventQuery{}, func(holt.Event) error { return nil }); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error("it comes again:", err)
	}
}
