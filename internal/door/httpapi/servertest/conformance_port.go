package servertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// servePy is a program of a computer that says at which port it listens. To each
// connection it does what its first line says.
const servePy = `
import os, socket, struct, sys, threading
def serve(c):
    f = c.makefile("rb")
    word = f.readline().split()
    if word[0] == b"echo":
        c.sendall(f.read())
    elif word[0] == b"send":
        for i in range(int(word[1]) >> 20): c.sendall(bytes([i & 255]) * (1 << 20))
    elif word[0] == b"reset":
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif word[0] == b"hang":
        f.read()
        print("broke", flush=True)
    f.close()
    c.close()
if sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.bind(sys.argv[1])
else:
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
s.listen(100)
print(s.getsockname() if sys.argv[1:] else s.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// listener is a run that listens, and what it says.
type listener struct {
	run  holt.Run
	to   holt.PortAddress
	said chan string // further lines
}

// listen starts it, at a unix socket if there is a path.
func listen(t *testing.T, n nouns.Set, computer, socket string) *listener {
	t.Helper()
	argv := []string{"python3", "-c", servePy}
	if socket != "" {
		argv = append(argv, socket)
	}
	l := &listener{said: make(chan string, 100)}
	l.run = Must(n.Runs.Start(t.Context(), computer, holt.RunSpec{Argv: argv, User: "root"}, ""))(t)
	go func() {
		var line strings.Builder
		err := n.Runs.Follow(context.WithoutCancel(t.Context()), l.run.ID, 0, func(e holt.RunEvent) error {
			for _, b := range e.Data {
				if b == '\n' {
					l.said <- line.String()
					line.Reset()
				} else {
					line.WriteByte(b)
				}
			}
			if e.Kind == holt.RunExit {
				close(l.said)
			}
			return nil
		})
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { n.Runs.Signal(context.WithoutCancel(t.Context()), l.run.ID, "SIGKILL", "") })
	at := l.says(t)
	if l.to.Socket = holt.OSString(socket); socket == "" {
		l.to.Port, _ = strconv.Atoi(at)
	}
	return l
}

func (l *listener) says(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-l.said:
		if !ok {
			t.Fatal("the listener has ended")
		}
		return line
	case <-time.After(screenWait):
		t.Fatal("the listener says nothing")
	}
	return ""
}

func portVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "bell")
	Must(n.Computers.Stop(ctx, "bell", ""))(t)
	l := listen(t, n, "bell", "")
	var mine *holt.Listener
	for _, one := range Must(n.Ports.List(ctx, "bell"))(t) {
		if one.Port == l.to.Port {
			mine = &one
		}
	}
	if mine == nil || mine.Protocol != "tcp" || mine.Address != "127.0.0.1" || mine.Run != l.run.ID || mine.PID == 0 || !strings.HasPrefix(mine.Process, "python3") || mine.User == "" {
		t.Errorf("listed %+v", mine)
	}
	socket := listen(t, n, "bell", filepath.Join(t.TempDir(), "s"))
	data := bytes.Repeat([]byte("0123456789abcdef"), 50000)
	var all sync.WaitGroup
	for i := range 40 {
		to := l.to
		if i%4 == 0 {
			to = socket.to
		}
		all.Go(func() {
			conn, err := n.Ports.Connect(ctx, "bell", to)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.Write(append([]byte("echo\n"), data...))
			conn.CloseWrite() // what comes back waits for it
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
				t.Errorf("echo of %d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()

	_, err := n.Ports.Connect(ctx, "nobody", l.to)
	WantCode(t, err, holt.NotFound)
	_, err = n.Ports.List(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	for _, to := range []holt.PortAddress{{}, {Port: 1, Socket: "/x"}, {Socket: "x"}, {Port: 70000}} {
		_, err = n.Ports.Connect(ctx, "bell", to)
		WantCode(t, err, holt.InvalidArgument)
	}
	for _, to := range []holt.PortAddress{{Port: 1}, {Socket: "/no/such/socket"}} {
		_, err = n.Ports.Connect(ctx, "bell", to)
		WantCode(t, err, holt.Unavailable)
		if e := holt.AsError(err); e.Hint == "" || !strings.Contains(e.Message, "nothing listens") {
			t.Errorf("%+v", e)
		}
	}
}

// portEnds: a connection ends as its far end has it, or as this one has it; who does not
// read holds up nobody else.
func portEnds(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "bell")
	l := listen(t, n, "bell", "")
	dial := func(word string) holt.PortConn {
		t.Helper()
		conn := Must(n.Ports.Connect(ctx, "bell", l.to))(t)
		t.Cleanup(func() { conn.Close() })
		_, err := io.WriteString(conn, word+"\n")
		fail(t, err)
		return conn
	}
	const much = 32 << 20 // more than is on its way anywhere
	slow := dial(fmt.Sprint("send ", much))

	reset := dial("reset")
	_, err := io.ReadAll(reset)
	var broke *holt.Error
	if !errors.As(err, &broke) || broke.Code != holt.Unavailable {
		t.Errorf("a connection that was reset ended with %v", err)
	}
	hang := dial("hang")
	fail(t, hang.Close())
	if said := l.says(t); said != "broke" {
		t.Errorf("after a close the listener says %q", said)
	}
	for range 3 { // runs and other connections go on beside the one that is not read
		run := Must(n.Runs.Start(ctx, "bell", holt.RunSpec{Command: "echo here"}, ""))(t)
		if out, _ := Collect(t, n, run.ID); out[holt.RunStdout] != "here\n" {
			t.Errorf("output %q", out)
		}
		conn := dial("echo")
		fail(t, conn.CloseWrite())
		if _, err := io.ReadAll(conn); err != nil {
			t.Error(err)
		}
	}
	stuck := dial("hang") // takes all that is sent
	var sent sync.WaitGroup
	sent.Go(func() { io.Copy(stuck, neverEnds{}) })
	fail(t, stuck.Close()) // frees who writes
	sent.Wait()

	hash, want := sha256.New(), sha256.New()
	for i := range much >> 20 {
		want.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	if size, err := io.Copy(hash, slow); err != nil || size != much || !bytes.Equal(hash.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d of %d bytes, %v", size, much, err)
	}
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return len(p), nil }
