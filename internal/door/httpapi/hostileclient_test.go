package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/event"
	"holt/internal/nouns"
)

// TestDeafFollower: a follower of events that reads nothing is cut off, and holds up nobody who makes them happen.
func TestDeafFollower(t *testing.T) {
	nouns, feed := servertest.New(t).Nouns(), new(event.Feed) // which takes many at once
	nouns.Events = feed
	opt := servertest.Options(t, nouns)
	opt.Patience, opt.Beat = 300*time.Millisecond, 50*time.Millisecond
	d := servertest.Serve(t, opt, "")
	c := overTCP(t, d)
	conn, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", d.Addr, servertest.Secret)
	first := bufio.NewReaderSize(conn, 16)
	if line, err := first.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	began := time.Now()
	for goroutinesIn("eventStream") > 0 {
		for range 400 {
			feed.Add(holt.Event{Kind: holt.EventComputerState, Tenant: holt.DefaultTenant, Name: "curie"})
		}
		if time.Since(began) > 60*time.Second {
			t.Fatal("it was not cut off")
		}
	}
	if status, _, _ := c.do("GET", "/v1/health", ""); status != 200 {
		t.Errorf("afterwards: status %d", status)
	}
}

// goroutinesIn counts those that have a function of that name on their stack.
func goroutinesIn(name string) int {
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), ")."+name+".")
}

// TestFloodedSocket: a control message without end, in any number of frames, ends the connection; so do messages that are none.
func TestFloodedSocket(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c, ctx := overTCP(t, d), t.Context()
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string]func(*websocket.Conn) error{
		"without end": func(conn *websocket.Conn) error {
			w, err := conn.Writer(ctx, websocket.MessageText)
			for i := 0; err == nil && i < 1<<16; i++ { // a GiB, each a frame
				_, err = w.Write(make([]byte, 16<<10))
			}
			return err
		},
		"of unknown kind": func(conn *websocket.Conn) error {
			return conn.Write(ctx, websocket.MessageText, []byte(`{"kind":"explode"}`))
		},
		"deep": func(conn *websocket.Conn) error {
			return conn.Write(ctx, websocket.MessageText, []byte(strings.Repeat(`{"kind":`, 8000)))
		},
	} {
		conn, _, err := websocket.Dial(ctx, "ws://"+d.Addr+"/v1/computers/bell/terminals/main/attach?open=true&command=cat", &websocket.DialOptions{HTTPHeader: c.header})
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadLimit(-1)
		sent := make(chan error, 1)
		go func() { sent <- send(conn) }()
		for err == nil {
			_, _, err = conn.Read(ctx)
		}
		if got := websocket.CloseStatus(err); got != websocket.StatusPolicyViolation && name != "without end" {
			t.Errorf("%s: %v", name, err)
		}
		conn.CloseNow()
		<-sent
	}
}

// TestIdleConnections: thousands of connections that say nothing cost little, and a call beside them is answered.
func TestIdleConnections(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	const many = 2000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, 0, many)
	for range many {
		conn, err := net.Dial("tcp", d.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	io.WriteString(conns[0], "GET /v1/health HT") // and one that does not go on
	began := time.Now()
	for range 20 {
		q, _ := http.NewRequest("GET", "http://"+d.Addr+"/v1/health", nil)
		q.Header.Set("Authorization", "Bearer "+servertest.Secret)
		resp, err := http.DefaultClient.Do(q)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%+v, %v", resp, err)
		}
		resp.Body.Close()
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("20 calls took %v beside them", took)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// revoking holds each call by a token that is revoked when somebody calls revoke.
type revoking struct {
	servertest.Tokens
	held chan context.CancelCauseFunc
}

func (k revoking) Hold(ctx context.Context, _ access.Token) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	k.held <- end
	return ctx, func() { end(context.Canceled) }
}

// pausing takes a MiB of a file, has the token revoked while it reads nothing, and reads on.
type pausing struct {
	nouns.Files
	tokens revoking
	rest   chan int64
}

func (p pausing) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	if _, err := io.CopyN(io.Discard, r, 1<<20); err != nil {
		return holt.FileInfo{}, err
	}
	(<-p.tokens.held)(holt.Errorf(holt.Unauthenticated, "the token was revoked"))
	runtime.Gosched()
	n, err := io.Copy(io.Discard, r)
	p.rest <- n
	return holt.FileInfo{}, err
}

// TestRevokedWhileNotRead: a body that always has more is read no further once its token is revoked, whether a read of it
// waits at that moment or not.
func TestRevokedWhileNotRead(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	tokens := revoking{held: make(chan context.CancelCauseFunc, 1)}
	files := pausing{nouns.WorkspaceFiles, tokens, make(chan int64, 1)}
	nouns.WorkspaceFiles = files
	opt := servertest.Options(t, nouns)
	opt.Tokens = tokens
	d := servertest.Serve(t, opt, "")
	const size = 256 << 20
	r, err := http.NewRequestWithContext(t.Context(), "PUT", "http://"+d.Addr+"/v1/workspaces/notes/files/content?path=/x", io.LimitReader(endless{}, size))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+servertest.Secret)
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Error("it was answered", resp.StatusCode)
	}
	if rest := <-files.rest; rest > size/2 {
		t.Errorf("%d bytes were taken of a revoked token", rest)
	}
}

// endless is zeros without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
