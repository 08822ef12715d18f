package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/door/httpapi/servertest"
)

// TestSocketFromOutside: a terminal's WebSocket asks for what every call asks
// for, and a page of another site gets none.
func TestSocketFromOutside(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	ctx := t.Context()
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := nouns.Terminals.Open(ctx, "bell", holt.TerminalSpec{Command: "stty -echo; echo ready; cat"}, ""); err != nil {
		t.Fatal(err)
	}
	const path = "/v1/computers/bell/terminals/main/attach"
	token := http.Header{"Authorization": {"Bearer " + servertest.Secret}}
	with := func(name, value string) http.Header {
		h := token.Clone()
		h.Set(name, value)
		return h
	}
	for _, tt := range []struct {
		name, path string
		header     http.Header
		status     int
	}{
		{"no token", path, nil, 401},
		{"wrong token", path, http.Header{"Authorization": {"Bearer x"}}, 401},
		{"another site", path, with("Origin", "https://evil.example"), 403},
		{"another site, as browsers say", path, with("Sec-Fetch-Site", "cross-site"), 403},
		{"another host", path, with("Host", "evil.example"), 403},
		{"no such terminal", "/v1/computers/bell/terminals/other/attach", token, 404},
		{"no such computer", "/v1/computers/nobody/terminals/main/attach", token, 404},
		{"no offset", path + "?offset=x", token, 400},
		{"no size", path + "?rows=5000", token, 400},
		{"unknown", path + "?what=x", token, 400},
	} {
		host := tt.header.Get("Host")
		conn, resp, err := websocket.Dial(ctx, "ws://"+d.Addr+tt.path, &websocket.DialOptions{HTTPHeader: tt.header, Host: host})
		if err == nil {
			conn.CloseNow()
			t.Errorf("%s: it was let in", tt.name)
			continue
		}
		if resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %v, want status %d", tt.name, err, tt.status)
		}
	}
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Addr+path, nil)
	r.Header = token.Clone()
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("a plain GET: %+v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	for _, header := range []http.Header{token, with("Origin", "http://"+d.Addr)} { // a program; a page of ours
		conn, _, err := websocket.Dial(ctx, "ws://"+d.Addr+path, &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			t.Fatal(err)
		}
		talk(t, ctx, conn)
	}
}

// talk speaks the protocol in plain words, as a client in another language does.
func talk(t *testing.T, ctx context.Context, conn *websocket.Conn) {
	t.Helper()
	defer conn.CloseNow()
	kind, body, err := conn.Read(ctx)
	var hello holt.TerminalEvent
	if err != nil || kind != websocket.MessageText || json.Unmarshal(body, &hello) != nil || hello.Kind != holt.TerminalAttached || hello.Terminal.Name != "main" {
		t.Fatalf("%v %s, %v", kind, body, err)
	}
	conn.Write(ctx, websocket.MessageText, []byte(`{"kind":"resize","size":{"rows":40,"cols":120}}`))
	conn.Write(ctx, websocket.MessageText, []byte(`{"kind":"signal","signal":"SIGCONT"}`))
	conn.Write(ctx, websocket.MessageBinary, []byte("hello\n"))
	for text := ""; !strings.Contains(text, "hello\r\n"); {
		kind, body, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if kind == websocket.MessageBinary {
			text += string(body)
		}
	}
	for _, bad := range []string{`{"kind":"what"}`} {
		conn.Write(ctx, websocket.MessageText, []byte(bad))
		for {
			if _, _, err := conn.Read(ctx); err != nil {
				if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
					t.Errorf("after %s: %v", bad, err)
				}
				break
			}
		}
	}
}

// TestSocketAtTheEnd: a daemon that ends says so, does not wait for a terminal,
// and its client goes on with the next.
func TestSocketAtTheEnd(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	ctx := t.Context()
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := nouns.Terminals.Open(ctx, "bell", holt.TerminalSpec{Command: "stty -echo; echo ready; cat"}, ""); err != nil {
		t.Fatal(err)
	}
	s := servertest.Watch(t, servertest.ClientNouns(d.Client(t, time.Minute)), "bell", "main", holt.AttachSpec{Offset: -1})
	s.Shows(t, "ready")
	for i, end := range []func() error{func() error { return d.Server.Shutdown(ctx) }, func() error { d.Kill(); return nil }} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		d.Kill()
		d = servertest.Serve(t, servertest.Options(t, nouns), d.Socket)
		s.Type(t, strings.Repeat("x", i+1)+"\n")
		s.Shows(t, strings.Repeat("x", i+1)+"\r\n")
	}
	if n := strings.Count(s.Text(), "x"); n != 3 || strings.Count(s.Text(), "ready") != 1 {
		t.Errorf("shown: %q", s.Text())
	}
	s.Type(t, "\x04")
	s.Exit(t)
}

// TestSocketOfRevoked: who is attached hears that the token was revoked, and not only that the line is cut.
func TestSocketOfRevoked(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	ctx := t.Context()
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := nouns.Terminals.Open(ctx, "bell", holt.TerminalSpec{Command: "cat"}, ""); err != nil {
		t.Fatal(err)
	}
	tokens := revoking{held: make(chan context.CancelCauseFunc, 1)}
	opt := servertest.Options(t, nouns)
	opt.Tokens = tokens
	d := servertest.Serve(t, opt, "")
	conn, _, err := websocket.Dial(ctx, "ws://"+d.Addr+"/v1/computers/bell/terminals/main/attach", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + servertest.Secret}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, _, err := conn.Read(ctx); err != nil { // attached
		t.Fatal(err)
	}
	(<-tokens.held)(holt.Errorf(holt.Unauthenticated, "the token was revoked"))
	var last holt.TerminalEvent
	for {
		kind, body, err := conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Error(err)
			}
			break
		}
		if kind == websocket.MessageText {
			if err := json.Unmarshal(body, &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Kind != holt.TerminalError || holt.CodeOf(last.Error) != holt.Unauthenticated {
		t.Errorf("the last message: %+v", last)
	}
}
