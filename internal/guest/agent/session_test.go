package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"holt"
)

// inSession runs a session with input to its end.
func inSession(t *testing.T, c *Client, spec holt.SessionSpec, input io.Reader) (stdout, stderr string, end holt.SessionEnd) {
	t.Helper()
	s, err := c.OpenSession(t.Context(), holt.NewTerminalID(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go func() {
		io.Copy(struct{ io.Writer }{s}, input)
		s.CloseWrite()
	}()
	var out, errs bytes.Buffer
	if end, err = s.Output(&out, &errs); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), end
}

// TestSession: streams, end of input, status and signals; users and
// directories; a terminal with modes.
func TestSession(t *testing.T) {
	c := startGuest(t).client(t)
	none := strings.NewReader("")
	if out, errs, end := inSession(t, c, holt.SessionSpec{Command: "cat; echo err >&2; exit 9", Env: map[holt.OSString]holt.OSString{"A": "b"}}, strings.NewReader("typed")); out != "typed" || errs != "err\n" || end.ExitCode != 9 {
		t.Errorf("%q %q %+v", out, errs, end)
	}
	if _, _, end := inSession(t, c, holt.SessionSpec{Command: "kill -USR1 $$"}, none); end.Signal != "SIGUSR1" || end.ExitCode != 138 {
		t.Errorf("%+v", end)
	}
	if out, _, _ := inSession(t, c, holt.SessionSpec{Command: "id -u; pwd", User: "root"}, none); out != "0\n/root\n" {
		t.Errorf("%q", out)
	}
	terminal := &holt.SessionTerminal{Type: "vt220", Size: holt.TerminalSize{Rows: 7, Cols: 70}, Modes: []holt.TerminalMode{{Op: 53, Value: 0}, {Op: 3, Value: 8}, {Op: 72, Value: 0}}}
	if out, _, _ := inSession(t, c, holt.SessionSpec{Command: "stty size; echo $TERM; stty -a | grep -o -e ' -echo ' -e ' erase = ^.'; tty", Terminal: terminal}, none); !strings.HasPrefix(out, "7 70\nvt220\n erase = ^H\n -echo \n/dev/pts/") {
		t.Errorf("%q", out)
	}
	if out, _, end := inSession(t, c, holt.SessionSpec{Terminal: &holt.SessionTerminal{}}, strings.NewReader("PS1=; shopt -q login_shell && echo $((40+2))\nexit 5\n")); !strings.Contains(out, "42") || end.ExitCode != 5 {
		t.Errorf("a shell: %q %+v", out, end)
	}
	for _, spec := range []holt.SessionSpec{{User: "ghost"}, {Command: "x\x00"}, {Command: "x", Env: map[holt.OSString]holt.OSString{"a=b": ""}}} {
		if _, err := c.OpenSession(t.Context(), holt.NewTerminalID(), spec); err == nil {
			t.Errorf("%+v is run", spec)
		}
	}
}

// TestSessionKeepsAllOutput: a slow reader gets all output, including that of a
// shell's children; a process that only holds the streams is not waited for.
func TestSessionKeepsAllOutput(t *testing.T) {
	c := startGuest(t).client(t)
	data := make([]byte, 12<<20)
	rand.NewChaCha8([32]byte{2}).Read(data)
	s, err := c.OpenSession(t.Context(), holt.NewTerminalID(), holt.SessionSpec{Command: "exec > >(cat); cat; sleep 300 & disown; echo begun >&2"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go func() {
		s.Write(data)
		s.CloseWrite()
	}()
	sum := sha256.New()
	var errs bytes.Buffer
	end, err := s.Output(slow{sum}, &errs)
	if want := sha256.Sum256(data); err != nil || end.ExitCode != 0 || !bytes.Equal(sum.Sum(nil), want[:]) || errs.String() != "begun\n" {
		t.Errorf("%+v %v %q", end, err, errs.String())
	}
	sh(t, c, "pkill -x -f 'sleep 300'") // it goes on
}

// slow delays each write.
type slow struct{ w io.Writer }

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.w.Write(p)
}

// TestSessionEnds: when its stream ends a session's program is signalled, even
// if it neither reads nor writes; its children are not.
func TestSessionEnds(t *testing.T) {
	c := startGuest(t).client(t)
	for _, terminal := range []*holt.SessionTerminal{nil, {}} {
		s, err := c.OpenSession(t.Context(), holt.NewTerminalID(), holt.SessionSpec{Command: "setsid sleep 311 & echo begun; exec sleep 310", Terminal: terminal})
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		go s.Output(w, io.Discard)
		if _, err := io.ReadFull(r, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		go func() {
			for { // more than its pipe takes
				if _, err := s.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		time.Sleep(50 * time.Millisecond) // until that waits: then the end cannot be read from the stream
		r.Close()
		s.Close()
		sh(t, c, "while pgrep -x -f 'sleep 310'; do sleep 0.05; done; pkill -x -f 'sleep 311'")
	}
	s, err := c.OpenSession(t.Context(), holt.NewTerminalID(), holt.SessionSpec{Command: "trap 'echo heard; exit 3' USR1; echo ready; while :; do sleep 0.1; done"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, w := io.Pipe()
	ended := make(chan holt.SessionEnd, 1)
	go func() {
		end, _ := s.Output(w, io.Discard)
		w.Close()
		ended <- end
	}()
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(t.Context(), "USR1"); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "heard\n" {
		t.Errorf("%q", rest)
	}
	if end := <-ended; end.ExitCode != 3 {
		t.Errorf("%+v", end)
	}
	if err := s.Signal(t.Context(), "USR1"); err == nil {
		t.Error("a session that has ended takes signals")
	}
}

// TestListen: the host listens in the guest at loopback ports and a user's
// sockets, as far as permitted and until it closes them.
func TestListen(t *testing.T) {
	c := startGuest(t).client(t)
	ctx := t.Context()
	l, err := c.Listen(ctx, "tcp", 0, "", "agent")
	if err != nil || l.Port < lowPorts {
		t.Fatal(l, err)
	}
	echo := func(l *Listener) {
		for {
			conn, _, err := l.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(struct{ io.Writer }{conn}, conn)
				conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
		}
	}
	go echo(l)
	speak := func(network, address, user string) (string, error) {
		conn, err := c.DialPortAs(ctx, network, address, user)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		io.WriteString(conn, "hello")
		conn.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(conn)
		return string(b), err
	}
	for _, host := range []string{"127.0.0.1", "[::1]", "127.0.0.1"} {
		if got, err := speak("tcp", host+":"+strconv.Itoa(l.Port), ""); got != "hello" || err != nil {
			t.Fatal(got, err)
		}
	}
	u, err := c.Listen(ctx, "unix", 0, "", "agent")
	if err != nil {
		t.Fatal(err)
	}
	go echo(u)
	if got, err := speak("unix", u.Path, "agent"); got != "hello" || err != nil {
		t.Fatal(got, err)
	}
	if _, err := speak("unix", u.Path, "4711"); holt.CodeOf(err) != holt.Forbidden {
		t.Error("another user's:", err)
	}
	r, err := c.Listen(ctx, "unix", 0, "/root/sock", "root")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := speak("unix", "/root/sock", "agent"); holt.CodeOf(err) != holt.Forbidden {
		t.Error("root's:", err)
	}
	r.Close()
	for what, try := range map[string]func() error{
		"a low port":       func() error { _, err := c.Listen(ctx, "tcp", 80, "", "agent"); return err },
		"root's directory": func() error { _, err := c.Listen(ctx, "unix", 0, "/root/x", "agent"); return err },
		"a taken port":     func() error { _, err := c.Listen(ctx, "tcp", l.Port, "", "agent"); return err },
		"no user":          func() error { _, err := c.Listen(ctx, "tcp", 0, "", "ghost"); return err },
		"a relative path":  func() error { _, err := c.Listen(ctx, "unix", 0, "x", "agent"); return err },
	} {
		if holt.CodeOf(try()) == holt.Internal || try() == nil {
			t.Errorf("%s: %v", what, try())
		}
	}
	dir := u.Path[:strings.LastIndexByte(u.Path, '/')]
	u.Close()
	l.Close()
	sh(t, c, "while [ -e "+dir+" ] || [ -e /root/sock ] || ss -ltn | grep -q :"+strconv.Itoa(l.Port)+"; do sleep 0.05; done")
}

// TestListenHeld: connections that the host does not accept are dropped, and
// only a few are announced.
func TestListenHeld(t *testing.T) {
	g := &guestListener{room: make(chan struct{}, maxUnaccepted), waiting: map[uint64]net.Conn{}}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	g.at = at
	told := make(chan announced, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go g.accept(ctx, func(c announced) error { told <- c; return nil })
	for range maxUnaccepted + 8 {
		conn, err := net.Dial("tcp", at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for i := range maxUnaccepted {
		if c := <-told; c.Number != uint64(i+1) || c.From == "" {
			t.Fatal(c)
		}
	}
	select {
	case c := <-told:
		t.Error("one more than there is room for is told:", c)
	default:
	}
	if conn := g.take(1); conn == nil {
		t.Error("the first is gone")
	} else {
		conn.Close()
	}
	if c := <-told; c.Number != maxUnaccepted+1 {
		t.Error(c)
	}
	if g.take(1) != nil || g.take(99) != nil {
		t.Error("one is taken twice")
	}
}

// FuzzSession: any session stream is decoded or refused, in the memory of one event.
func FuzzSession(f *testing.F) {
	f.Add(appendEvent(appendEvent(nil, eventStdout, 0, []byte("x")), eventExit, 0, []byte(`{"exit_code":3,"signal":"SIGTERM"}`)))
	f.Add(appendEvent(nil, eventGap, 0, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := readSession(bytes.NewReader(b), io.Discard, io.Discard)
		if err == nil && (end.ExitCode < 0 || end.ExitCode > 255 || len(end.Signal) > 16) {
			t.Fatalf("%+v", end)
		}
		var stop stopped
		if errors.As(err, &stop) {
			t.Fatal(err)
		}
	})
}
