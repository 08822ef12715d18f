package network

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"holt/internal/engine/machine"
)

// TestOwnConns: a network has at most mostConns connections to the daemon; others wait. They do not affect another
// computer.
func TestOwnConns(t *testing.T) {
	var open atomic.Int64
	over := make(chan int64, 100) // of those that were too many
	counts := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if now := open.Add(1); now > mostConns {
			over <- now
		}
		defer open.Add(-1)
		io.ReadAll(r.Body)
	})
	reads := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.ReadAll(r.Body) })
	var dirs []*machine.Dir
	for i, h := range []http.Handler{counts, reads} {
		d, err := machine.MakeDir(filepath.Join(t.TempDir(), strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		stop, err := answer(d, h)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		dirs = append(dirs, d)
	}
	ask := func(d *machine.Dir, body string) net.Conn {
		t.Helper()
		c, err := d.Dial(t.Context(), ownSocket)
		if err == nil {
			c.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: holt.internal\r\nContent-Length: 4\r\n\r\n"+body)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var halves []net.Conn
	for range mostConns {
		halves = append(halves, ask(dirs[0], "ha"))
		within(t, "it to be heard", func() bool { return open.Load() == int64(len(halves)) })
	}
	for range 8 { // which wait at the socket
		halves = append(halves, ask(dirs[0], "ha"))
	}
	a, err := http.ReadResponse(bufio.NewReader(ask(dirs[1], "half")), nil)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("another computer: %v %v", a, err)
	}
	for _, c := range halves {
		io.WriteString(c, "lf")
		c.(*net.UnixConn).CloseWrite()
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("one of those: %v", err)
		}
	}
	if len(over) > 0 {
		t.Errorf("%d at once", <-over)
	}
}
