package daemon_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/client"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// route is one operation of the API's document.
type route struct {
	id, method, path string
	query            []string // that it needs
	keyed, body, raw bool
}

// routes reads the API's document.
func routes(t testing.TB, document []byte) []route {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct {
				Name, In string
				Required bool
			}
			RequestBody *struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	var all []route
	for path, methods := range doc.Paths {
		for method, op := range methods {
			r := route{id: op.OperationID, method: strings.ToUpper(method), path: path}
			for _, p := range op.Parameters {
				r.keyed = r.keyed || p.Name == "Idempotency-Key"
				if p.In == "query" && p.Required {
					r.query = append(r.query, p.Name)
				}
			}
			if op.RequestBody != nil {
				_, r.body = op.RequestBody.Content["application/json"]
				r.raw = !r.body
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b route) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	if len(all) < 100 {
		t.Fatalf("%d routes", len(all))
	}
	return all
}

// vars are things, by the names that paths, queries and bodies have for them.
type vars map[string]string

func (v vars) in(s string) string {
	for name, value := range v {
		s = strings.NewReplacer("{"+name+"}", url.PathEscape(value), "$"+name, value).Replace(s)
	}
	return s
}

// out takes the things out of an answer again.
func (v vars) out(s string) string {
	for _, value := range slices.Backward(slices.Sorted(maps.Values(v))) { // the longer of two that begin alike first
		if len(value) > 4 {
			s = strings.ReplaceAll(s, value, "<>")
		}
	}
	return s
}

// oneFile is a tar stream of a file.
func oneFile(t testing.TB) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: "sent", Mode: 0o644, Size: 5})
	if err == nil {
		_, err = io.WriteString(w, "hello")
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &out
}

// door is a server over TCP before a daemon.
type door struct {
	t    testing.TB
	d    *daemon.Daemon
	base string
	all  []route
}

func doorOf(t *testing.T, d *daemon.Daemon) *door {
	t.Helper()
	opt := servertest.Options(t, d.Nouns())
	opt.Tokens, opt.Authorize = d.Tokens(), d.Authorizer()
	at := servertest.Serve(t, opt, "")
	return &door{t, d, "http://" + at.Addr, routes(t, httpapi.New(opt).Document())}
}

// token makes one of a tenant.
func (d *door) token(tenant, name string, scopes ...holt.Scope) string {
	d.t.Helper()
	_, secret, err := d.d.Tokens().CreateFor(d.t.Context(), tenant, name, 0, scopes...)
	if err != nil {
		d.t.Fatal(err)
	}
	return secret
}

func (d *door) client(t testing.TB, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Host: d.base, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// call calls a route about some things.
func (d *door) call(r route, v vars, token, key string) (status int, body string) {
	d.t.Helper()
	q := url.Values{}
	for _, name := range r.query {
		q.Set(name, v.in(queries[name]))
	}
	switch r.id {
	case "connectPort":
		q.Set("port", "80")
	case "followEvents":
		q.Set("follow", "false")
	case "untarFiles", "untarWorkspaceFiles":
		q.Set("path", "/reports")
	}
	var send io.Reader = http.NoBody
	if r.body {
		if bodies[r.id] == "" {
			d.t.Fatalf("%s: say in bodies what is sent to it", r.id)
		}
		send = strings.NewReader(v.in(bodies[r.id]))
	} else if strings.HasPrefix(r.id, "untar") {
		send = oneFile(d.t)
	} else if r.raw {
		send = bytes.NewReader([]byte("hello"))
	}
	path := v.in(r.path)
	if strings.ContainsAny(path, "{$") {
		d.t.Fatalf("%s: what is %s?", r.id, path)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), r.method, d.base+path+"?"+q.Encode(), send)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if r.body {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.keyed && key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if r.id == "appendUpload" {
		req.Header.Set("Content-Type", "application/offset+octet-stream")
		req.Header.Set("Upload-Offset", "0")
	}
	if r.id == "attachTerminal" || r.id == "connectPort" || r.id == "connectSSH" {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		d.t.Fatalf("%s: %v", r.id, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatalf("%s: %v", r.id, err)
	}
	return resp.StatusCode, string(b)
}
