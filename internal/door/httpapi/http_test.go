package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// caller makes plain HTTP calls to one door of a test's server.
type caller struct {
	t      *testing.T
	client *http.Client
	base   string
	header http.Header
}

func overSocket(t *testing.T, d *servertest.Door) *caller {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, &http.Client{Transport: transport}, "http://holt", http.Header{}}
}

func overTCP(t *testing.T, d *servertest.Door) *caller {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, &http.Client{Transport: transport}, "http://" + d.Addr, http.Header{"Authorization": {"Bearer " + servertest.Secret}}}
}

// do returns the status, the header and the body of an answer. Headers are
// "Name: value".
func (c *caller) do(method, path, body string, headers ...string) (int, http.Header, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = c.header.Clone()
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else if value == "" {
			r.Header.Del(name)
		} else {
			r.Header.Set(name, value)
		}
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// refused checks that a call gets an error in the one form.
func (c *caller) refused(status int, code holt.Code, method, path, body string, headers ...string) holt.Error {
	c.t.Helper()
	got, header, text := c.do(method, path, body, headers...)
	var e holt.Error
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		c.t.Errorf("%s %s: status %d, not an error: %s", method, path, got, text)
		return e
	}
	if got != status || e.Code != code || e.Message == "" || header.Get("Content-Type") != "application/json" {
		c.t.Errorf("%s %s: status %d, %s, %+v; want %d, %s", method, path, got, header.Get("Content-Type"), e, status, code)
	}
	if !strings.HasPrefix(header.Get("X-Request-Id"), "req_") {
		c.t.Errorf("%s %s: request id %q", method, path, header.Get("X-Request-Id"))
	}
	return e
}

func TestBadInput(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := overSocket(t, d)
	c.do("POST", "/v1/computers", `{"name":"curie"}`)
	long := strings.Repeat("a", 300)
	const bad, none = holt.InvalidArgument, holt.NotFound
	for _, call := range []struct {
		status             int
		code               holt.Code
		method, path, body string
	}{
		{400, bad, "POST", "/v1/computers", `{`},
		{400, bad, "POST", "/v1/computers", `[]`},
		{400, bad, "POST", "/v1/computers", ``},
		{400, bad, "POST", "/v1/computers", `{"cpus":"two"}`},
		{400, bad, "POST", "/v1/computers", `{"cpu":2}`},
		{400, bad, "POST", "/v1/computers", `{"name":"` + long + `"}`},
		{400, bad, "GET", "/v1/computers/" + long, ``},
		{400, bad, "GET", "/v1/computers/a%2Fb", ``},
		{400, bad, "GET", "/v1/computers/%00", ``},
		{404, none, "GET", "/v1/computers/nobody", ``},
		{404, none, "GET", "/v1/computers/" + string(holt.NewComputerID()), ``},
		{400, bad, "GET", "/v1/computers?limit=0", ``},
		{400, bad, "GET", "/v1/computers?limit=1001", ``},
		{400, bad, "GET", "/v1/computers?limit=many", ``},
		{400, bad, "GET", "/v1/computers?unknown=1", ``},
		{400, bad, "POST", "/v1/computers/curie/runs", `{}`},
		{400, bad, "POST", "/v1/computers/curie/runs", `{"command":"true","argv":["true"]}`},
		{400, bad, "GET", "/v1/computers/curie/runs?cursor=x", ``},
		{400, bad, "GET", "/v1/runs/run_x", ``},
		{400, bad, "GET", "/v1/runs/run_x/events", ``},
		{404, none, "GET", "/v1/runs/" + string(holt.NewRunID()) + "/events", ``},
		{400, bad, "GET", "/v1/runs/" + string(holt.NewRunID()) + "/events?offset=-1", ``},
		{404, none, "PUT", "/v1/runs/" + string(holt.NewRunID()) + "/stdin", `x`},
		{400, bad, "GET", "/v1/computers/curie/files", ``},
		{400, bad, "GET", "/v1/computers/curie/files?path=relative", ``},
		{400, bad, "GET", "/v1/computers/curie/files?path=/%00", ``},
		{400, bad, "GET", "/v1/computers/curie/files/stat?path=/" + strings.Repeat("a", 4097), ``},
		{404, none, "GET", "/v1/computers/curie/files/content?path=/missing", ``},
		{400, bad, "PUT", "/v1/computers/curie/files/content?path=/f&mode=999", `x`},
		{400, bad, "POST", "/v1/computers/curie/files/mkdir", `{"path":"x"}`},
		{400, bad, "POST", "/v1/computers/curie/files/rename", `{"from":"/a"}`},
		{400, bad, "POST", "/v1/workspaces", `{"name":"-"}`},
		{400, bad, "POST", "/v1/workspaces/curie/query", `{"sql":" "}`},
		{400, bad, "POST", "/v1/workspaces/curie/query", `{"sql":"SELECT 1","max_rows":-1}`},
		{400, bad, "POST", "/v1/workspaces/curie/mounts", `{"dir":"relative"}`},
		{400, bad, "DELETE", "/v1/mounts", ``},
		{400, bad, "POST", "/v1/down", `{"computers":"explode"}`},
		{404, none, "GET", "/v2/computers", ``},
		{404, none, "GET", "/", ``},
		{405, bad, "PATCH", "/v1/computers", ``},
		{405, bad, "POST", "/v1/health", ``},
	} {
		c.refused(call.status, call.code, call.method, call.path, call.body)
	}
	if _, header, _ := c.do("PATCH", "/v1/computers", ""); strings.Join(header.Values("Allow"), ",") != "GET,POST" {
		t.Errorf("allowed: %q", header.Values("Allow"))
	}
	c.refused(400, bad, "POST", "/v1/computers", `{}`, "Idempotency-Key: "+strings.Repeat("k", 129))
	c.refused(400, bad, "GET", "/v1/runs/"+string(holt.NewRunID())+"/events", ``, "Last-Event-ID: -5")
	if status, _, _ := c.do("POST", "/v1/computers", `<name/>`, "Content-Type: application/xml"); status != 415 {
		t.Errorf("XML got status %d, want 415", status)
	}
	if all, _ := memoryList(t, d); len(all) != 1 {
		t.Errorf("bad input left %d computers, want 1", len(all))
	}
}

func memoryList(t *testing.T, d *servertest.Door) ([]holt.Computer, error) {
	return d.Client(t, time.Minute).Computers.List(t.Context())
}

func TestBodyLimit(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := overSocket(t, d)
	e := c.refused(413, holt.InvalidArgument, "POST", "/v1/computers", `{"name":"`+strings.Repeat("a", 1<<20)+`"}`)
	if !strings.Contains(e.Message, "too large") {
		t.Errorf("message %q", e.Message)
	}
	if status, _, _ := c.do("GET", "/v1/health", "", "X-Long: "+strings.Repeat("x", 80<<10)); status != 431 {
		t.Errorf("a header of 80 KiB got status %d, want 431", status)
	}
}

func TestTokens(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := overTCP(t, d)
	if status, _, _ := c.do("GET", "/v1/health", ""); status != 200 {
		t.Errorf("with a token: status %d", status)
	}
	for _, header := range []string{"Authorization: ", "Authorization: Bearer wrong", "Authorization: Bearer", "Authorization: Basic " + servertest.Secret} {
		e := c.refused(401, holt.Unauthenticated, "GET", "/v1/health", "", header)
		if e.Hint == "" {
			t.Errorf("%s: no hint", header)
		}
	}
	c.refused(401, holt.Unauthenticated, "POST", "/v1/down", "", "Authorization: ") // loopback is not trusted
	c.refused(401, holt.Unauthenticated, "GET", "/no/such/path", "", "Authorization: ")
	for _, path := range []string{"/docs", "/openapi.json"} {
		if status, _, _ := c.do("GET", path, "", "Authorization: "); status != 200 {
			t.Errorf("%s without a token: status %d, want 200", path, status)
		}
	}
	none := servertest.Options(t, servertest.New(t).Nouns())
	none.Tokens = nil
	overTCP(t, servertest.Serve(t, none, "")).refused(401, holt.Unauthenticated, "GET", "/v1/health", "")
}

func TestOtherSites(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Hosts = []string{"holt.example"}
	d := servertest.Serve(t, opt, "")
	for _, c := range []*caller{overTCP(t, d), overSocket(t, d)} {
		host := strings.TrimPrefix(c.base, "http://")
		if status, _, text := c.do("GET", "/v1/health", "", "Origin: http://"+host, "Sec-Fetch-Site: same-origin"); status != 200 {
			t.Errorf("its own origin: status %d: %s", status, text)
		}
		for _, headers := range [][]string{
			{"Origin: http://evil.example"}, {"Origin: null"}, {"Origin: http://" + host + ".evil.example"}, {"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"},
		} {
			c.refused(403, holt.Forbidden, "GET", "/v1/health", "", headers...)
			c.refused(403, holt.Forbidden, "POST", "/v1/down", "", headers...)
		}
	}
	c := overTCP(t, d)
	for host, want := range map[string]int{"holt.example": 200, "HOLT.example:80": 200, "localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 403, "127.0.0.1.evil.example": 403} {
		if status, _, _ := c.do("GET", "/v1/health", "", "Host: "+host); status != want {
			t.Errorf("host %s: status %d, want %d", host, status, want)
		}
	}
}

// TestUnknownHostIsTold: who calls by a name that the daemon does not know reads which flag it needs.
func TestUnknownHostIsTold(t *testing.T) {
	c := overTCP(t, servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), ""))
	for host, want := range map[string]string{"Holt.example.com:4646": "--host holt.example.com,", "hub": "--host hub,", "127.0.0.1.evil_": "--host NAME,", "a;b": "--host NAME,"} {
		status, _, text := c.do("GET", "/v1/health", "", "Host: "+host)
		if status != 403 || !strings.Contains(text, "start the daemon with "+want) {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
}

// brokenNouns panics, or fails without a code, or works for longer than a
// caller may be slow.
type brokenNouns struct {
	nouns.Computers
	after time.Duration
}

func (n brokenNouns) Get(_ context.Context, ref string) (holt.Computer, error) {
	if ref == "panic" {
		panic("a defect")
	}
	return holt.Computer{}, io.ErrUnexpectedEOF
}

func (n brokenNouns) Create(ctx context.Context, _ holt.ComputerSpec, _ string) (holt.Computer, error) {
	select {
	case <-ctx.Done():
		return holt.Computer{}, ctx.Err()
	case <-time.After(n.after):
		return holt.Computer{Name: "late"}, nil
	}
}

func TestDefects(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	nouns.Computers = brokenNouns{Computers: nouns.Computers}
	var log bytes.Buffer
	opt := servertest.Options(t, nouns)
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := servertest.Serve(t, opt, "")
	c := overSocket(t, d)
	for _, name := range []string{"panic", "other"} {
		status, header, text := c.do("GET", "/v1/computers/"+name, "")
		var e holt.Error
		if err := json.Unmarshal([]byte(text), &e); err != nil || status != 500 || e.Code != holt.Internal {
			t.Errorf("%s: status %d, %s", name, status, text)
		}
		id := header.Get("X-Request-Id")
		if !strings.Contains(e.Hint, id) || id == "" {
			t.Errorf("%s: the hint %q does not name request %s", name, e.Hint, id)
		}
	}
	if status, _, _ := c.do("GET", "/v1/health", ""); status != 200 {
		t.Errorf("after a panic: status %d", status)
	}
	d.Kill()
	if !strings.Contains(log.String(), "a defect") || !strings.Contains(log.String(), "http_test.go") {
		t.Errorf("the log does not say where it panicked:\n%s", log.String())
	}
}

// TestLongWork is about huma's body timeout, which cancelled calls that worked
// for longer.
func TestLongWork(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	opt.Patience = time.Second // a busy machine takes its time to read a body that is there
	opt.Nouns.Computers = brokenNouns{Computers: nouns.Computers, after: opt.Patience + opt.Patience/4}
	c := overSocket(t, servertest.Serve(t, opt, ""))
	for range 2 { // the second on the same connection
		status, _, text := c.do("POST", "/v1/computers", `{}`)
		if status != 201 || !strings.Contains(text, "late") {
			t.Errorf("status %d: %s", status, text)
		}
	}
}

// TestSlowSender holds a connection and sends half a body.
func TestSlowSender(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Patience = 20 * time.Millisecond
	d := servertest.Serve(t, opt, "")
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/computers HTTP/1.1\r\nHost: holt\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	answer, err := io.ReadAll(conn) // the server answers and closes
	if err != nil || !bytes.Contains(answer, []byte("408 Request Timeout")) || !bytes.Contains(answer, []byte(`"code":"timeout"`)) {
		t.Errorf("answered %q, %v", answer, err)
	}
}

func TestRequestLog(t *testing.T) {
	var log bytes.Buffer
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Log = slog.New(slog.NewJSONHandler(&log, nil))
	d := servertest.Serve(t, opt, "")
	_, header, _ := overTCP(t, d).do("POST", "/v1/computers", `{"name":"curie"}`)
	d.Kill()
	var line struct {
		Request, Method, Path, Token string
		Status                       int
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	if line.Request != header.Get("X-Request-Id") || line.Method != "POST" || line.Path != "/v1/computers" || line.Status != 201 || line.Token != "tok_aaaaaaaaaaaaaaaa" {
		t.Errorf("logged %+v", line)
	}
	if strings.Contains(log.String(), servertest.Secret) {
		t.Error("the log holds the token")
	}
}

// TestCallerGone: who hangs up before the answer is no defect of the daemon's, nor anything to warn of.
func TestCallerGone(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Nouns.Computers = brokenNouns{Computers: opt.Nouns.Computers, after: time.Hour}
	log, w := io.Pipe()
	defer log.Close()
	opt.Log = slog.New(slog.NewJSONHandler(w, nil))
	d := servertest.Serve(t, opt, "")
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "POST /v1/computers HTTP/1.1\r\nHost: holt\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	conn.Close()
	var line struct {
		Level string
		Code  holt.Code
	}
	if err := json.NewDecoder(log).Decode(&line); err != nil || line.Level != "INFO" || line.Code != holt.Unavailable {
		t.Errorf("logged %+v, %v", line, err)
	}
}

var _ httpapi.Tokens = (*access.Tokens)(nil)
