package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// webPy serves 50 MiB, and small things that say whose they are.
const webPy = `
import http.server, socket
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = open("/etc/hostname").read().strip()
        self.send_response(200)
        self.end_headers()
        if self.path == "/large":
            for i in range(50): self.wfile.write(bytes([i]) * (1 << 20))
        else:
            self.wfile.write((name + " " + self.path).encode())
    def log_message(self, *args): pass
class S(http.server.ThreadingHTTPServer):
    request_queue_size = 300
S(("127.0.0.1", 8000), H).serve_forever()
`

// dialer returns an HTTP client whose every connection is to a port of a computer.
func (v *vm) dialer(computer string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := v.Ports.Connect(ctx, computer, holt.PortAddress{Port: 8000})
			if err != nil {
				return nil, err
			}
			return netConn{PortConn: conn}, nil
		},
	}}
}

// netConn is a connection to a port as package net has them.
type netConn struct {
	holt.PortConn
	net.Conn
}

func (c netConn) Read(p []byte) (int, error)  { return c.PortConn.Read(p) }
func (c netConn) Write(p []byte) (int, error) { return c.PortConn.Write(p) }
func (c netConn) Close() error                { return c.PortConn.Close() }

// fetch gets a page of a computer.
func (v *vm) fetch(computer, path string) []byte {
	v.t.Helper()
	resp, err := v.dialer(computer).Get("http://x" + path)
	if err != nil {
		v.t.Error(computer, path, err)
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Error(computer, path, err)
	}
	return b
}

// TestPorts: a computer and two forks of it serve HTTP on the same inner port at once, and
// each is reached; 200 small connections and one of 50 MiB go through at once, while one that is not read
// holds up nobody; a pause ends what is open and says so, and a new connection wakes the computer.
func TestPorts(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 512}, ""); err != nil {
		t.Fatal(err)
	}
	run, err := v.Runs.Start(ctx, "einstein", holt.RunSpec{Argv: []string{"python3", "-c", webPy}}, "")
	if err != nil {
		t.Fatal(err)
	}
	v.until("einstein", "exec 3<>/dev/tcp/127.0.0.1/8000 && echo listens || true", "listens")
	list, err := v.Ports.List(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range list {
		found = found || l.Port == 8000 && l.Run == run.ID && l.Process == "python3" && l.User == "agent" && l.Address == "127.0.0.1"
	}
	if !found {
		t.Errorf("listed %+v", list)
	}
	_, err = v.Ports.Connect(ctx, "einstein", holt.PortAddress{Port: 9999})
	if e := holt.AsError(err); e.Code != holt.Unavailable || e.Message != "nothing listens at port 9999 of einstein" || !strings.Contains(e.Hint, "8000 (python3)") {
		t.Errorf("%+v", e)
	}
	forked, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Count: 2}, "")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"einstein"}
	for _, f := range forked.Computers {
		all = append(all, f.Name)
	}
	var work sync.WaitGroup
	for _, name := range all {
		work.Go(func() {
			for range 5 {
				if got := string(v.fetch(name, "/who")); got != name+" /who" {
					t.Errorf("%s answers %q", name, got)
				}
			}
		})
	}
	work.Wait()
	v.load("einstein")
	v.pausedUnder("einstein", run.ID)
	v.endPorts(all)
}

// load is what a browser does and more, with a stream that nobody reads beside it.
func (v *vm) load(computer string) {
	v.t.Helper()
	slow, err := v.Ports.Connect(v.t.Context(), computer, holt.PortAddress{Port: 8000})
	if err != nil {
		v.t.Fatal(err)
	}
	defer slow.Close()
	io.WriteString(slow, "GET /large HTTP/1.0\r\n\r\n")
	want := sha256.New()
	for i := range 50 {
		want.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	began := time.Now()
	var work sync.WaitGroup
	work.Go(func() {
		if got := sha256.Sum256(v.fetch(computer, "/large")); !bytes.Equal(got[:], want.Sum(nil)) {
			v.t.Error("50 MiB came otherwise")
		}
		v.t.Logf("50 MiB in %v", time.Since(began))
	})
	for i := range 200 {
		work.Go(func() {
			path := fmt.Sprint("/", i)
			if got := string(v.fetch(computer, path)); got != computer+" "+path {
				v.t.Errorf("%s: %q", path, got)
			}
		})
	}
	work.Wait()
	v.t.Logf("with 200 small ones in %v", time.Since(began))
	v.says(computer, "true") // nothing is stuck
}

// pausedUnder pauses a computer while connections are open, and reaches it again.
func (v *vm) pausedUnder(computer string, run holt.RunID) {
	v.t.Helper()
	ctx := v.t.Context()
	open, err := v.Ports.Connect(ctx, computer, holt.PortAddress{Port: 8000})
	if err != nil {
		v.t.Fatal(err)
	}
	defer open.Close()
	if _, err := v.Computers.Pause(ctx, computer, ""); err != nil {
		v.t.Fatal(err)
	}
	var e *holt.Error
	if _, err := io.ReadAll(open); !errors.As(err, &e) || !strings.Contains(e.Message, "was paused") || e.Hint == "" {
		v.t.Errorf("a connection to a paused computer ended with %v", err)
	}
	if got := string(v.fetch(computer, "/again")); got != computer+" /again" { // it wakes
		v.t.Errorf("after the pause: %q", got)
	}
	if got, err := v.Runs.Get(ctx, run); err != nil || got.State != holt.RunRunning {
		v.t.Errorf("%+v %v", got, err)
	}
}

// endPorts deletes computers, one under an open connection.
func (v *vm) endPorts(all []string) {
	v.t.Helper()
	ctx := v.t.Context()
	open, err := v.Ports.Connect(ctx, all[0], holt.PortAddress{Port: 8000})
	if err != nil {
		v.t.Fatal(err)
	}
	defer open.Close()
	for _, name := range all {
		if _, err := v.Computers.Delete(ctx, name, ""); err != nil {
			v.t.Error(err)
		}
	}
	if _, err := io.ReadAll(open); holt.CodeOf(err) != holt.NotFound && holt.CodeOf(err) != holt.Unavailable {
		v.t.Errorf("a connection to a deleted computer ended with %v", err)
	}
}
