package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
)

// TestRevokedTokenEndsWhatItHasOpen: a terminal, a followed run, a download whose reader is slow and an upload
// that goes on end with their token, within seconds; those of another token go on.
func TestRevokedTokenEndsWhatItHasOpen(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stays := d.client(t, d.token("default", "stays"))
	if _, err := stays.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := stays.WorkspaceFiles.Write(ctx, "einstein", "/large", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 64<<20))); err != nil {
		t.Fatal(err)
	}
	run, err := stays.Runs.Start(ctx, "einstein", holt.RunSpec{Command: "sleep 600"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stays.Terminals.Open(ctx, "einstein", holt.TerminalSpec{Name: "shell"}, ""); err != nil {
		t.Fatal(err)
	}
	token, secret, err := d.d.Tokens().Create(ctx, "goes", 0)
	if err != nil {
		t.Fatal(err)
	}
	goes := d.client(t, secret)
	began, ended := make(chan string, 4), make(chan error, 4)
	others := make(chan struct{}) // closed when all but the download have ended
	go func() {
		in := make(chan holt.TerminalInput)
		first := true
		ended <- named("terminal", goes.Terminals.Attach(ctx, "einstein", "shell", holt.AttachSpec{Offset: -1}, in, func(holt.TerminalEvent) error {
			if first {
				first = false
				began <- "terminal"
			}
			return nil
		}))
	}()
	go func() {
		began <- "events"
		ended <- named("events", goes.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))
	}()
	go func() {
		r, err := http.NewRequestWithContext(ctx, "GET", d.base+"/v1/workspaces/einstein/files/content?path=/large", nil)
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			ended <- named("download", err)
			return
		}
		defer resp.Body.Close()
		_, err = io.ReadFull(resp.Body, make([]byte, 1000))
		began <- "download"
		<-others // it reads nothing more until the token is gone: the server has its writes cut off, or waits for a reader who comes back
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		ended <- named("download", err)
	}()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, err := io.WriteString(conn, "PUT /v1/workspaces/einstein/files/content?path=/up HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+secret+"\r\nContent-Length: 100\r\n\r\nbegin")
		began <- "upload"
		if err == nil {
			_, err = io.ReadAll(conn) // nothing more is sent: it ends when the server closes
		}
		if err == nil {
			err = errors.New("closed")
		}
		ended <- named("upload", err)
	}()
	for range 4 {
		<-began
	}
	revoked := time.Now()
	if err := stays.Tokens.Delete(ctx, string(token.ID), ""); err != nil {
		t.Fatal(err)
	}
	var over []string
	for i := range 4 {
		if i == 3 {
			close(others)
		}
		select {
		case err := <-ended:
			over = append(over, err.Error())
			if !strings.Contains(err.Error(), ": ") || strings.HasSuffix(err.Error(), "<nil>") {
				t.Errorf("it ended as if nothing were: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("something goes on, and not %q", over)
		}
	}
	if took := time.Since(revoked); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	for { // nothing of it is left in the server
		all, err := stays.Terminals.List(ctx, "einstein")
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Attached == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := goes.Computers.List(ctx); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error(err)
	}
	if got, err := stays.Runs.Get(ctx, run.ID); err != nil || got.State != holt.RunRunning {
		t.Error("the run ended with who followed it:", got.State, err)
	}
	if _, err := stays.WorkspaceFiles.Stat(ctx, "einstein", "/up"); holt.CodeOf(err) != holt.NotFound {
		t.Error("half an upload is there:", err)
	}
	if err := stays.Runs.Signal(ctx, run.ID, "SIGKILL", ""); err != nil {
		t.Error(err)
	}
}

// named is an error that says of what.
func named(what string, err error) error {
	if err == nil {
		return errors.New(what + ": <nil>")
	}
	return errors.New(what + ": " + err.Error())
}

// TestAuditStory: what is done is written down, with who and where, and no secret is in it, nor in the daemon's
// log and databases.
func TestAuditStory(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	var log strings.Builder
	opt := servertest.Options(t, d.Nouns())
	opt.Authorize = d.Authorizer()
	opt.Tokens, opt.Audit, opt.Log = d.Tokens(), d.Audit(), servertest.Log(&log)
	at := servertest.Serve(t, opt, "")
	here := &door{t: t, d: d, base: "http://" + at.Addr}
	ctx := t.Context()
	root, owner := here.token("default", "root", "admin"), here.token("team-a", "owner")
	admin, c := here.client(t, root), here.client(t, owner)
	machine, err := c.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WorkspaceFiles.Write(ctx, "curie", "/notes.md", holt.WriteSpec{}, strings.NewReader("the content of the file")); err != nil {
		t.Fatal(err)
	}
	if err := c.WorkspaceFiles.Read(ctx, "curie", "/notes.md", 0, -1, io.Discard); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Computers.List(ctx) // which is left out
	made, err := c.Tokens.Create(ctx, holt.TokenSpec{Name: "child", Scopes: []holt.Scope{"read-only"}}, "key")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Tokens.Create(ctx, holt.TokenSpec{Name: "child", Scopes: []holt.Scope{"read-only"}}, "key"); err != nil || again.Secret != "" || again.ID != made.ID {
		t.Error("a repeated call:", again.ID, again.Secret != "", err)
	}
	child := here.client(t, made.Secret)
	if _, err := child.Computers.Stop(ctx, "curie", ""); holt.CodeOf(err) != holt.Forbidden {
		t.Error(err)
	}
	// People put secrets in wrong places: in paths, as names of things, as keys.
	_, _ = c.Tokens.Get(ctx, made.Secret)
	_, _ = c.WorkspaceFiles.Stat(ctx, "curie", "/"+made.Secret)
	_ = c.WorkspaceFiles.Remove(ctx, "curie", "/"+made.Secret, false, "")
	stranger := here.client(t, strings.Replace(made.Secret, "holt_", "holt_a", 1)[:len(made.Secret)])
	if _, err := stranger.Computers.List(ctx); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error(err)
	}
	all, err := admin.Audit.List(ctx, holt.AuditSpec{Tenant: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, e := range all {
		seen = append(seen, e.Name+" "+e.Op+" "+e.Code)
		if e.Actor != "token" || e.Door != "tcp" || e.Remote == "" || e.Request == "" || e.At.IsZero() || e.Tenant != "team-a" {
			t.Errorf("%+v", e)
		}
	}
	for _, want := range []string{"owner createComputer ok", "owner writeWorkspaceFile ok", "owner readWorkspaceFile ok", "owner createToken ok", "child stopComputer forbidden"} {
		if !strings.Contains(strings.Join(seen, "\n"), want) {
			t.Errorf("there is no %q in %q", want, seen)
		}
	}
	if strings.Contains(strings.Join(seen, "\n"), "listComputers") {
		t.Error("lists are in it:", seen)
	}
	created := all[len(all)-1]
	if created.Op != "createComputer" || created.Made != string(machine.ID) || created.Noun != "computers" {
		t.Errorf("%+v", created)
	}
	res, err := admin.Audit.Query(ctx, "", holt.TableQuery{SQL: "SELECT count(*), count(DISTINCT tenant) FROM audit WHERE code = 'unauthenticated' AND actor = 'nobody'"})
	if err != nil || len(res.Rows) != 1 || fmtValue(res.Rows[0][0]) != "1" {
		t.Error(res.Rows, err)
	}
	// A tenant sees its own rows, whatever it asks.
	other := here.client(t, here.token("team-b", "other"))
	if list, err := other.Audit.List(ctx, holt.AuditSpec{}); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if _, err := other.Audit.List(ctx, holt.AuditSpec{Tenant: "team-a"}); holt.CodeOf(err) != holt.Forbidden {
		t.Error(err)
	}
	for _, sql := range []string{"SELECT * FROM main.entry", "SELECT * FROM entry", "WITH audit AS (SELECT * FROM main.entry) SELECT * FROM audit",
		"ATTACH 'audit.db' AS a", "DELETE FROM audit", "PRAGMA database_list"} {
		if res, err := other.Audit.Query(ctx, "", holt.TableQuery{SQL: sql}); err == nil && len(res.Rows) > 0 {
			t.Errorf("%s: %v", sql, res.Rows)
		}
	}
	res, err = c.Audit.Query(ctx, "", holt.TableQuery{SQL: "SELECT count(*), count(DISTINCT tenant), max(tenant) FROM audit WHERE took_us >= 0"})
	if err != nil || len(res.Rows) != 1 || fmtValue(res.Rows[0][1]) != "1" || fmtValue(res.Rows[0][2]) != "team-a" {
		t.Error(res.Rows, err)
	}
	if _, err := child.Audit.List(ctx, holt.AuditSpec{}); err != nil {
		t.Error("read-only may look at what its tenant did:", err)
	}
	for _, secret := range []string{root, owner, made.Secret} {
		key := secret[strings.LastIndexByte(secret, '_')+1:]
		if strings.Contains(log.String(), key) {
			t.Error("a secret is in the log")
		}
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || !strings.Contains(path, ".db") || strings.Contains(path, "workspaces") {
				return nil // what people put into files is theirs
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), key) {
				t.Errorf("%s has a secret", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func fmtValue(v any) string {
	if s, ok := v.(interface{ String() string }); ok {
		return s.String()
	}
	s, _ := v.(string)
	return s
}

// floodBegun is more than the buffers of a connection hold: when a client has read this much of a body, the server has
// admitted the call.
const floodBegun = 64 << 20

// flood is a body of some bytes that never pauses. It calls begun in a goroutine once floodBegun bytes of it have been
// read; until that returns the rest comes slowly.
type flood struct {
	size, read int64
	begun      func()
	goes       chan struct{} // closed when begun has returned
	sent       chan struct{} // closed when all of it was read
}

func (f *flood) Read(p []byte) (int, error) {
	n := min(int64(len(p)), f.size-f.read)
	if n == 0 {
		return 0, io.EOF
	}
	before := f.read
	if before >= floodBegun {
		select {
		case <-f.goes:
		case <-time.After(time.Millisecond):
			n = min(n, 1<<10)
		}
	}
	if f.read += n; before < floodBegun && f.read >= floodBegun {
		go func() { f.begun(); close(f.goes) }()
	}
	if f.read == f.size {
		close(f.sent)
	}
	return int(n), nil
}

// TestRevokedTokenUploadsNoMore: of a body that never pauses nothing more is taken when its token is revoked, and
// nothing is replaced: neither by a file that is sent at once nor by an upload that commits with its last byte.
func TestRevokedTokenUploadsNoMore(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	stays := d.client(t, d.token("default", "stays"))
	if _, err := stays.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := stays.WorkspaceFiles.Write(ctx, "notes", "/put", holt.WriteSpec{}, strings.NewReader("as it was")); err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	u, err := stays.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/patched", Size: size, AutoCommit: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	for method, path := range map[string]string{"PUT": "/v1/workspaces/notes/files/content?path=/put", "PATCH": "/v1/uploads/" + string(u.ID)} {
		token, secret, err := d.d.Tokens().Create(ctx, "goes", 0)
		if err != nil {
			t.Fatal(err)
		}
		revoked := make(chan error, 1)
		body := &flood{size: size, begun: func() { revoked <- d.d.Tokens().Delete(ctx, token.ID) }, goes: make(chan struct{}), sent: make(chan struct{})}
		r, err := http.NewRequestWithContext(ctx, method, d.base+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Upload-Offset", "0")
		r.ContentLength = size
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s: it was answered %d", method, resp.StatusCode)
		}
		if err := <-revoked; err != nil {
			t.Fatal(err)
		}
		select {
		case <-body.sent:
			t.Errorf("%s: all of it was taken", method)
		default:
		}
	}
	if info, err := stays.WorkspaceFiles.Stat(ctx, "notes", "/put"); err != nil || info.Size != int64(len("as it was")) {
		t.Errorf("the file was replaced: %+v, %v", info, err)
	}
	if u, err = stays.Uploads.Get(ctx, u.ID); err != nil || u.State != holt.UploadOpen || u.Offset == size {
		t.Errorf("the upload: %s, at %d, %v", u.State, u.Offset, err)
	}
	if _, err := stays.WorkspaceFiles.Stat(ctx, "notes", "/patched"); holt.CodeOf(err) != holt.NotFound {
		t.Error("the upload is there:", err)
	}
}
