package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/door/httpapi/servertest"
)

// TestTunnelFromOutside: a connection to a port asks for what every call asks for, speaks in plain words, and
// says how it ends.
func TestTunnelFromOutside(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietly{t}, nouns), "")
	ctx := t.Context()
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				all, _ := io.ReadAll(conn)
				conn.Write(all)
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	path := fmt.Sprintf("/v1/computers/bell/connect?port=%d", port)
	token := http.Header{"Authorization": {"Bearer " + servertest.Secret}}
	site := token.Clone()
	site.Set("Origin", "https://evil.example")
	for _, tt := range []struct {
		name, path string
		header     http.Header
		status     int
	}{
		{"no token", path, nil, 401},
		{"another site", path, site, 403},
		{"no such computer", "/v1/computers/nobody/connect?port=1", token, 404},
		{"no port", "/v1/computers/bell/connect", token, 400},
		{"a port and a socket", path + "&socket=/x", token, 400},
		{"no path", "/v1/computers/bell/connect?socket=x", token, 400},
		{"a large port", "/v1/computers/bell/connect?port=65536", token, 400},
		{"nothing listens", "/v1/computers/bell/connect?port=1", token, 503},
	} {
		conn, resp, err := websocket.Dial(ctx, "ws://"+d.Addr+tt.path, &websocket.DialOptions{HTTPHeader: tt.header})
		if err == nil {
			conn.CloseNow()
			t.Errorf("%s: it was let in", tt.name)
		} else if resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %v, want status %d", tt.name, err, tt.status)
		}
	}
	dial := func() *websocket.Conn {
		conn, _, err := websocket.Dial(ctx, "ws://"+d.Addr+path, &websocket.DialOptions{HTTPHeader: token})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := dial()
	conn.Write(ctx, websocket.MessageBinary, []byte("hello"))
	conn.Write(ctx, websocket.MessageText, []byte(`{"kind":"end"}`))
	if kind, body, err := conn.Read(ctx); err != nil || kind != websocket.MessageBinary || string(body) != "hello" {
		t.Errorf("%v %s %v", kind, body, err)
	}
	var m holt.PortMessage
	if kind, body, err := conn.Read(ctx); err != nil || kind != websocket.MessageText || json.Unmarshal(body, &m) != nil || m.Kind != holt.PortEnd {
		t.Errorf("%v %s %v", kind, body, err)
	}
	closes(t, ctx, conn, websocket.StatusNormalClosure)
	for _, bad := range [][]string{{"x"}, {`{"kind":"error"}`}, {`{"kind":"end"}`, `{"kind":"end"}`}} {
		conn := dial()
		for _, text := range bad {
			conn.Write(ctx, websocket.MessageText, []byte(text))
		}
		if len(bad) == 1 {
			closes(t, ctx, conn, websocket.StatusPolicyViolation)
		}
		conn.CloseNow()
	}
	open := dial()
	go d.Server.Shutdown(ctx)
	closes(t, ctx, open, websocket.StatusGoingAway)
}

// closes reads until a WebSocket is closed, with a code.
func closes(t *testing.T, ctx context.Context, conn *websocket.Conn, want websocket.StatusCode) {
	t.Helper()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			if websocket.CloseStatus(err) != want {
				t.Errorf("it ended with %v, want %v", err, want)
			}
			return
		}
	}
}

// quietly keeps a server's log out of the test's.
type quietly struct{ testing.TB }

func (quietly) Log(...any) {}
