package sshd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
	"holt/internal/store/db"
)

// echoes fakes computers in which each command prints itself and then its input.
type echoes struct {
	mu     sync.Mutex
	actors []holt.Actor // of sessions
	specs  []holt.SessionSpec
	of     map[string]string // tenant of computers that only one tenant has, by id
}

func (e *echoes) Get(ctx context.Context, ref string) (holt.Computer, error) {
	if tenant := e.of[ref]; tenant != "" && holt.Confined(ctx) != "" && holt.Confined(ctx) != tenant {
		return holt.Computer{}, holt.Errorf(holt.NotFound, "there is no computer %q", ref)
	}
	return holt.Computer{ID: holt.ComputerID(ref), Name: ref, State: holt.ComputerRunning}, nil
}

func (e *echoes) Open(ctx context.Context, ref string, spec holt.SessionSpec, _ string) (holt.Session, error) {
	if ref != "einstein" && e.of[ref] == "" {
		return nil, holt.Errorf(holt.NotFound, "there is no computer %q", ref)
	}
	a, _ := holt.ActorOf(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.actors, e.specs = append(e.actors, a), append(e.specs, spec)
	r, w := io.Pipe()
	return &echo{r: r, w: w, line: string(spec.Command)}, nil
}

func (e *echoes) Dial(_ context.Context, _ string, to holt.SessionAddress, _ string) (holt.PortConn, error) {
	return nil, holt.Errorf(holt.Unavailable, "nothing listens at %s", to)
}

func (e *echoes) Listen(context.Context, string, holt.SessionAddress, string) (holt.SessionListener, error) {
	return nil, holt.Errorf(holt.Unsupported, "no listening here")
}

type echo struct {
	r    *io.PipeReader
	w    *io.PipeWriter
	line string
}

func (e *echo) Write(p []byte) (int, error) { return e.w.Write(p) }
func (e *echo) CloseWrite() error           { return e.w.Close() }
func (e *echo) Close() error {
	e.w.CloseWithError(io.ErrUnexpectedEOF)
	return e.r.Close()
}
func (e *echo) Resize(context.Context, holt.TerminalSize) error { return nil }
func (e *echo) Signal(context.Context, string) error            { return nil }
func (e *echo) Output(stdout, _ io.Writer) (holt.SessionEnd, error) {
	io.WriteString(stdout, e.line)
	_, err := io.Copy(stdout, e.r)
	return holt.SessionEnd{ExitCode: 5}, err
}

// door is a listening gate and its parts.
type door struct {
	*Gate
	t      *testing.T
	addr   string
	tokens *access.Tokens
	there  *echoes
}

func openDoor(t *testing.T) *door {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(filepath.Join(dir, "holt.db"), access.Schema+Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	o := &door{t: t, tokens: access.New(d), there: &echoes{}}
	o.Gate, err = Open(Options{DB: d, DataDir: dir, Tokens: o.tokens, Computers: o.there, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- o.Serve(l) }()
	t.Cleanup(func() {
		o.Gate.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return o
}

// key makes a key and adds it.
func (o *door) key(ctx context.Context, spec holt.SSHKeySpec) (ssh.Signer, holt.SSHKey) {
	o.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		o.t.Fatal(err)
	}
	spec.Key = string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	one, err := o.Keys().Add(ctx, spec)
	if err != nil {
		o.t.Fatal(err)
	}
	return signer, one
}

// dial connects as a user.
func (o *door) dial(user string, auth ...ssh.AuthMethod) (*ssh.Client, error) {
	return ssh.Dial("tcp", o.addr, &ssh.ClientConfig{User: user, Auth: auth, HostKeyCallback: ssh.FixedHostKey(o.hostKey.PublicKey()), Timeout: time.Minute})
}

// runs runs a command and returns its output.
func runs(t *testing.T, c *ssh.Client, command, input string) (string, error) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	s.Stderr = &errs
	out, err := s.Output(command)
	return string(out) + errs.String(), err
}

// TestCallers: authentication by a key and by a token. Each session has its caller's rights, and ends with them.
func TestCallers(t *testing.T) {
	o := openDoor(t)
	ctx := t.Context()
	mine, _ := o.key(ctx, holt.SSHKeySpec{})
	teams, _ := o.key(ctx, holt.SSHKeySpec{Tenant: "team-a", Name: "theirs"})
	token, secret, err := o.tokens.CreateFor(ctx, "team-b", "robot", 0)
	if err != nil {
		t.Fatal(err)
	}
	robots, _ := o.key(holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{})
	for _, c := range []struct {
		auth ssh.AuthMethod
		want holt.Actor
	}{
		{ssh.PublicKeys(mine), holt.Actor{}},
		{ssh.PublicKeys(teams), holt.Actor{Name: "theirs", Tenant: "team-a"}},
		{ssh.PublicKeys(robots), token.Actor()},
		{ssh.Password(secret), token.Actor()},
	} {
		client, err := o.dial("einstein+root", c.auth)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runs(t, client, "say ", "this")
		if exit, ok := err.(*ssh.ExitError); !ok || exit.ExitStatus() != 5 || out != "say this" {
			t.Errorf("%q %v", out, err)
		}
		o.there.mu.Lock()
		last := len(o.there.actors) - 1
		if !reflect.DeepEqual(o.there.actors[last], c.want) || o.there.specs[last].User != "root" {
			t.Errorf("%+v as %q, not %+v", o.there.actors[last], o.there.specs[last].User, c.want)
		}
		o.there.mu.Unlock()
		client.Close()
	}
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	other, _ := ssh.NewSignerFromKey(stranger)
	for what, auth := range map[string]ssh.AuthMethod{"another key": ssh.PublicKeys(other), "a wrong token": ssh.Password(secret + "a"), "no token": ssh.Password("")} {
		if _, err := o.dial("einstein", auth); err == nil {
			t.Error(what, "is taken")
		}
	}
	if _, err := o.dial("no/name", ssh.Password(secret)); err == nil {
		t.Error("an invalid name is accepted")
	}
	client, err := o.dial("bohr", ssh.PublicKeys(mine))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	out, err := runs(t, client, "x", "")
	if exit, ok := err.(*ssh.ExitError); !ok || exit.ExitStatus() != 255 || !strings.Contains(out, `there is no computer "bohr"`) {
		t.Errorf("%q %v", out, err)
	}
}

// TestRightsEnd: connections end when their key or token is deleted. A key ends with the token that added it.
func TestRightsEnd(t *testing.T) {
	o := openDoor(t)
	ctx := t.Context()
	token, secret, err := o.tokens.Create(ctx, "robot", 0)
	if err != nil {
		t.Fatal(err)
	}
	keyed, key := o.key(ctx, holt.SSHKeySpec{})
	tokens, _ := o.key(holt.WithActor(ctx, token.Actor()), holt.SSHKeySpec{})
	stays, _ := o.key(ctx, holt.SSHKeySpec{})
	open := map[string]ssh.AuthMethod{"key": ssh.PublicKeys(keyed), "token": ssh.Password(secret), "the token's key": ssh.PublicKeys(tokens), "": ssh.PublicKeys(stays)}
	ended := map[string]chan error{}
	for name, auth := range open {
		client, err := o.dial("einstein", auth)
		if err != nil {
			t.Fatal(name, err)
		}
		defer client.Close()
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start("wait"); err != nil {
			t.Fatal(err)
		}
		ended[name] = make(chan error, 1)
		go func() { s.Wait(); ended[name] <- client.Wait() }()
	}
	if _, err := o.Keys().Delete(ctx, key.Fingerprint); err != nil {
		t.Fatal(err)
	}
	<-ended["key"]
	if err := o.tokens.Delete(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	<-ended["token"]
	<-ended["the token's key"]
	for name, auth := range open {
		_, err := o.dial("einstein", auth)
		if (err == nil) != (name == "") {
			t.Errorf("%s comes in again: %v", name, err)
		}
	}
	select {
	case err := <-ended[""]:
		t.Error("the connection of another key ended:", err)
	default:
	}
}

// TestGuessing: an address with many failed authentications must wait. Others are not affected.
func TestGuessing(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := failures{now: func() time.Time { return now }}
	for range failBurst + 1 {
		if f.tooMany("10.0.0.1") {
			t.Fatal("too soon")
		}
		f.failed("10.0.0.1")
	}
	if !f.tooMany("10.0.0.1") || f.tooMany("10.0.0.2") {
		t.Fatal(f.of)
	}
	if now = now.Add(failEvery + 1); f.tooMany("10.0.0.1") {
		t.Error("the failures do not expire")
	}
	for i := range 3 * mostAddresses {
		f.failed(net.IPv4(11, byte(i>>16), byte(i>>8), byte(i)).String())
	}
	if len(f.of) > mostAddresses {
		t.Errorf("%d addresses are remembered", len(f.of))
	}
	if place("[2001:db8:1:2:3::4]:5") != "2001:db8:1:2::/64" || place("10.0.0.1:7") != "10.0.0.1" || place("api") != "api" {
		t.Error(place("[2001:db8:1:2:3::4]:5"), place("10.0.0.1:7"))
	}

	o := openDoor(t)
	mine, _ := o.key(t.Context(), holt.SSHKeySpec{})
	for range 2 * failBurst { // a page can have a browser do this
		conn, err := net.Dial("tcp", o.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: "+strings.Repeat("x", 300)+"\r\n\r\n")
		io.Copy(io.Discard, conn) // until it is hung up on
		conn.Close()
	}
	if c, err := o.dial("einstein", ssh.PublicKeys(mine)); err != nil {
		t.Error("a client that does not speak SSH counts as a failure:", err)
	} else {
		c.Close()
	}
	for range failBurst + 1 {
		o.failures.failed("127.0.0.1")
	}
	if _, err := o.dial("einstein", ssh.PublicKeys(mine)); err == nil {
		t.Error("an address that must wait is admitted")
	}
	if address := o.Host().Address; address != o.addr {
		t.Error(address)
	}
}

// TestHostileClients: floods of channels, requests and connections, garbage and silent clients are bounded, and other
// clients can connect.
func TestHostileClients(t *testing.T) {
	o := openDoor(t)
	mine, _ := o.key(t.Context(), holt.SSHKeySpec{})
	bad, err := o.dial("einstein", ssh.PublicKeys(mine))
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	opened, refused := 0, 0
	payload := bytes.Repeat([]byte{0xff}, 200<<10)
	for range mostIn + 20 {
		ch, reqs, err := bad.OpenChannel("session", nil)
		if err != nil {
			refused++
			continue
		}
		opened++
		go ssh.DiscardRequests(reqs)
		for _, kind := range []string{"pty-req", "env", "exec", "shell-of-nothing", "subsystem", "signal", "window-change"} {
			ch.SendRequest(kind, true, payload)
		}
		ch.SendRequest("env", true, ssh.Marshal(envRequest{"LD_PRELOAD", strings.Repeat("x", 200<<10)}))
		ch.Write(make([]byte, 2<<20)) // all that its window takes; nobody reads it
	}
	if opened != mostIn || refused != 20 {
		t.Errorf("%d channels were opened, %d refused", opened, refused)
	}
	for range 200 {
		if ok, _, err := bad.SendRequest("tcpip-forward", true, payload); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	if most := uint64(mostIn * 3 << 20); memory.HeapAlloc > most { // each window, and room for what the test itself has
		t.Errorf("%d MiB are held", memory.HeapAlloc>>20)
	}

	var conns []net.Conn
	for i := range mostPendingOf + 10 {
		c, err := net.Dial("tcp", o.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		if i%2 == 0 { // the others say nothing
			io.WriteString(c, "SSH-2.0-x\r\n")
			c.Write(bytes.Repeat([]byte{0xff}, 64<<10))
		}
	}
	silent := 0
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := io.Copy(io.Discard, c); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				silent++
			}
		}
	}
	if silent > mostPendingOf {
		t.Errorf("%d connections that are not authenticated are kept", silent)
	}
	for _, c := range conns {
		c.Close()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		good, err := o.dial("einstein", ssh.PublicKeys(mine))
		if err == nil {
			out, _ := runs(t, good, "fine", "")
			good.Close()
			if out == "fine" {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("another client cannot connect: ", err)
		}
	}
}

// TestHostKey: the host key is made once, with mode 0600.
func TestHostKey(t *testing.T) {
	dir := t.TempDir()
	first, err := openHostKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openHostKey(dir)
	if err != nil || !bytes.Equal(first.PublicKey().Marshal(), again.PublicKey().Marshal()) {
		t.Error("the host key has changed:", err)
	}
	checkMode(t, filepath.Join(dir, hostKeyFile))
	if other, err := openHostKey(t.TempDir()); err != nil || bytes.Equal(first.PublicKey().Marshal(), other.PublicKey().Marshal()) {
		t.Error("two hosts have the same:", err)
	}
}
