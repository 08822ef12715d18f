package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/yamux"

	"holt"
)

// TestPorts: a guest lists its listening ports with their owners, and dialling
// localhost finds the listener at any address.
func TestPorts(t *testing.T) {
	c := startGuest(t).client(t)
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0") // the host's, whose network this guest shares
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	id := holt.NewRunID()
	listen := `python3 -u -c '
import socket
s = socket.socket(); s.bind(("127.0.0.7", 0)); s.listen(); print(s.getsockname()[1])
while True: s.accept()[0].sendall(b"seven")'`
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(listen), User: "root"}); err != nil {
		t.Fatal(err)
	}
	port := 0
	err = c.FollowRun(t.Context(), id, 0, func(e holt.RunEvent) error {
		if err := json.Unmarshal(e.Data, &port); err != nil {
			return err
		}
		return os.ErrClosed
	})
	if port == 0 {
		t.Fatal(err)
	}
	list, err := c.Ports(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if l := list[0]; l.Port != port || l.Address != "127.0.0.7" || l.Protocol != "tcp" || l.Run != id || l.PID == 0 || l.User != "root" || !strings.HasPrefix(l.Process, "python3") {
		t.Errorf("%+v", l)
	}
	conn, err := c.DialPort(t.Context(), "tcp", "localhost:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "seven" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	conn.Close()
	if err := c.SignalRun(t.Context(), id, "KILL"); err != nil {
		t.Fatal(err)
	}
	_, err = c.DialPort(t.Context(), "tcp", "localhost:1")
	wantCode(t, "dial where nobody listens", err, holt.NotFound)
	_, err = c.DialPort(t.Context(), "unix", filepath.Join(t.TempDir(), "none"))
	wantCode(t, "dial a socket that is not", err, holt.NotFound)
}

func TestOwned(t *testing.T) {
	run, term := holt.NewRunID(), holt.NewTerminalID()
	for tag, want := range map[string]holt.Listener{
		"run/" + string(run):       {Run: run},
		"terminal/" + string(term): {Terminal: term},
		"unit/nginx.service":       {Service: "nginx"},
		"unit/a@b.service":         {Service: "a@b"},
		"for/abc":                  {},
		"":                         {},
	} {
		if got := owned(holt.Listener{}, tag); got != want {
			t.Errorf("%q: %+v", tag, got)
		}
	}
}

// TestHostilePorts: a guest's list of ports is bounded and sanitised.
func TestHostilePorts(t *testing.T) {
	long := strings.Repeat("x", 9000)
	l := vetListener(holt.Listener{
		Protocol: "t\x1b[2Jcp", Address: long, Port: 1 << 40, PID: -4, Process: "a\nb", User: long, Run: "run_../../x", Terminal: "x", TerminalName: "main", Service: "\x00",
	})
	want := holt.Listener{
		Protocol: "t�[2Jcp", Address: long[:maxWord], Port: 65535, Process: "a b", User: long[:maxWord], Service: "�",
	}
	if l != want {
		t.Errorf("%+v", l)
	}
	many := hostile(t, eachStream(func(st *yamux.Stream) {
		defer st.Close()
		writeAnswer(st, nil, nil)
		for range 20 { // 20,000 ports
			writeAnswer(st, make([]holt.Listener, 1000), nil)
		}
		writeAnswer(st, []holt.Listener{}, nil)
	}))
	if list, err := many.Ports(t.Context()); err != nil || len(list) != MostPorts {
		t.Errorf("%d ports, %v", len(list), err)
	}
	endless := hostile(t, eachStream(func(st *yamux.Stream) {
		defer st.Close()
		for err := writeAnswer(st, nil, nil); err == nil; {
			err = writeAnswer(st, []holt.Listener{{Process: long}}, nil)
		}
	}))
	_, err := endless.Ports(t.Context())
	wantCode(t, "a list without end", err, holt.TooMany)
}

// TestPortClose: Close ends a connection whose far end does not read, even during a write.
func TestPortClose(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "port"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := startGuest(t).client(t)
	conn, err := c.DialPort(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(bytes.Repeat([]byte{1}, 64<<20)) // more than all windows take; zeros cross as a length
		wrote <- err
	}()
	for sent := 0; sent < 1<<20; { // it is on its way
		n, err := far.Read(make([]byte, 64<<10))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	returns(t, func() { conn.Close() })
	if err := <-wrote; err == nil {
		t.Error("all was written")
	}
}
