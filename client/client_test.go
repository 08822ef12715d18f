package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/client"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestConformance: over TCP the nouns of a real daemon are what they are in it.
func TestConformance(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		of := servertest.New(t)
		token := servertest.Must(of.Nouns().Tokens.Create(t.Context(), holt.TokenSpec{Name: "test", Scopes: []holt.Scope{"admin"}}, ""))(t)
		opt := servertest.Options(t, of.Nouns())
		opt.Tokens, opt.Authorize = of.Tokens(), of.Authorizer()
		d := servertest.Serve(t, opt, "")
		c, err := client.New(client.Options{Host: d.Addr, Token: token.Secret})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return servertest.ClientNouns(c)
	})
}

// failing answers every Get with err.
type failing struct {
	nouns.Computers
	err error
}

func (f failing) Get(context.Context, string) (holt.Computer, error) {
	return holt.Computer{}, f.err
}

func TestErrorsCrossTheWire(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	computers := nouns.Computers
	for _, code := range []holt.Code{
		holt.InvalidArgument, holt.NotFound, holt.AlreadyExists, holt.Conflict, holt.Unauthenticated, holt.Forbidden, holt.OutOfSpace,
		holt.TooMany, holt.Unsupported, holt.Unavailable, holt.Timeout, holt.Corrupt, holt.Internal,
	} {
		want := &holt.Error{Code: code, Message: "a sentence", Hint: "a hint", Detail: map[string]any{"left": "some"}}
		nouns.Computers = failing{computers, fmt.Errorf("get computer: %w", want)}
		d := servertest.Serve(t, servertest.Options(t, nouns), "")
		_, err := d.Client(t, time.Minute).Computers.Get(t.Context(), "curie")
		var got *holt.Error
		if !errors.As(err, &got) {
			t.Fatalf("%s: %v", code, err)
		}
		want.Message = "get computer: a sentence"
		if d := cmp.Diff([]any{want.Code, want.Message, want.Hint, want.Detail}, []any{got.Code, got.Message, got.Hint, got.Detail}); d != "" {
			t.Errorf("%s: %s", code, d)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "holt.sock")
	dead := filepath.Join(t.TempDir(), "holt.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, opt := range []client.Options{{Socket: missing}, {Socket: dead}, {Host: "127.0.0.1:1", Token: "x"}} {
		c, err := client.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, err := range []error{
			errOf(c.Daemon.Health(t.Context())),
			errOf(c.Computers.Create(t.Context(), holt.ComputerSpec{}, "")),
			c.Runs.Follow(t.Context(), holt.NewRunID(), 0, nil),
			errOf(c.Runs.Input(t.Context(), holt.NewRunID(), -1, strings.NewReader("x"), true, false)),
			c.Files.Read(t.Context(), "x", "/", 0, -1, io.Discard),
		} {
			var e *holt.Error
			if !errors.As(err, &e) || e.Code != holt.Unavailable || !strings.Contains(e.Hint, "holt up") {
				t.Errorf("%+v: %v", opt, err)
			}
		}
		if took := time.Since(began); took > 30*time.Second { // it is not waited for
			t.Errorf("%+v: took %s", opt, took)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestWrongAddresses(t *testing.T) {
	for _, opt := range []client.Options{
		{}, {Socket: "/x", Host: "y"}, {Host: "ftp://x"}, {Host: "http://x/path"}, {Host: "http://user:pw@x"}, {Host: "http://"}, {Host: "a b"},
	} {
		if _, err := client.New(opt); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	c, err := client.New(client.Options{Socket: "/no/socket"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", ".."} { // another path once a server has cleaned it
		if _, err := c.Computers.Delete(t.Context(), name, ""); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	// Something else answers there, or sends the caller and its token elsewhere.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the token went elsewhere: %s", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for name, handler := range map[string]http.HandlerFunc{
		"html": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); io.WriteString(w, "<html>") },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"empty": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
	} {
		s := httptest.NewServer(handler)
		c, err := client.New(client.Options{Host: s.URL, Token: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Daemon.Health(t.Context()); holt.CodeOf(err) != holt.Unavailable || !strings.Contains(err.Error(), "not a holt daemon") {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		s.Close()
	}
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "holt.sock")
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), socket)
	if _, err := d.Client(t, time.Minute).Daemon.Health(t.Context()); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 600", info.Mode(), err)
	}
	d.Kill()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("after its end the socket is there: %v", err)
	}
}

// TestFollowOverRestarts kills the server again and again under a client that
// follows: it gets each byte once.
func TestFollowOverRestarts(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	d := servertest.Serve(t, opt, "")
	c := d.Client(t, time.Minute)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	const restarts = 5
	// It goes on only when the test has made the file go, which it does after each restart.
	run, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{
		Command: holt.OSString(fmt.Sprintf("for i in $(seq %d); do echo $i; while [ ! -e go$i ]; do sleep 0.005; done; done; exit 9", restarts)),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	var end *holt.Run
	round := 0
	doors := make(chan *servertest.Door, 1)
	doors <- d
	err = c.Runs.Follow(t.Context(), run.ID, 0, func(e holt.RunEvent) error {
		got.Write(e.Data)
		if e.Kind == holt.RunExit {
			end = e.Run
			return nil
		}
		round++
		d := <-doors
		if round == 3 { // an end with notice, not a kill
			if err := d.Server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		d.Kill()
		_, err := nouns.Files.Write(t.Context(), "curie", fmt.Sprintf("/home/agent/go%d", round), holt.WriteSpec{}, strings.NewReader(""))
		time.AfterFunc(time.Duration(round)*10*time.Millisecond, func() { doors <- servertest.Serve(t, opt, d.Socket) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "1\n2\n3\n4\n5\n"; got.String() != want || end == nil || end.ExitCode != 9 {
		t.Errorf("followed %q, %+v; want %q", got.String(), end, want)
	}
}

// TestRefusedAfterAnAnswer: a daemon that has answered before is waited for,
// although nothing listens when the next call begins.
func TestRefusedAfterAnAnswer(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	d := servertest.Serve(t, opt, "")
	c := d.Client(t, time.Minute)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	file := servertest.Must(c.Files.Write(t.Context(), "curie", "/home/agent/f", holt.WriteSpec{}, strings.NewReader("x")))(t)
	run := servertest.Must(c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "echo hi; cat", Stdin: true}, ""))(t)
	seen := errors.New("seen")
	for name, call := range map[string]func() error{
		"get":   func() error { return errOf(c.Computers.Get(t.Context(), "curie")) },
		"start": func() error { return errOf(c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")) },
		"input": func() error {
			return errOf(c.Runs.Input(t.Context(), run.ID, -1, strings.NewReader("x"), false, false))
		},
		"follow": func() error {
			return c.Runs.Follow(t.Context(), run.ID, 0, func(holt.RunEvent) error { return seen })
		},
		"read": func() error { return c.Files.Read(t.Context(), "curie", string(file.Path), 0, -1, io.Discard) },
		"write": func() error {
			return errOf(c.Files.Write(t.Context(), "curie", string(file.Path), holt.WriteSpec{}, strings.NewReader("y")))
		},
	} {
		d.Kill()
		c.Close() // nothing is left to reuse, so that the call's first connection is refused
		back := make(chan *servertest.Door, 1)
		time.AfterFunc(50*time.Millisecond, func() { back <- servertest.Serve(t, opt, d.Socket) })
		if err := call(); err != nil && !errors.Is(err, seen) {
			t.Errorf("%s: %v", name, err)
		}
		d = <-back
	}
}

// lossy loses the answers of the first calls to Start, after they have worked.
type lossy struct {
	nouns.Runs
	lose func()
	n    *atomic.Int32
}

func (l lossy) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	run, err := l.Runs.Start(ctx, computer, spec, key)
	if l.n.Add(-1) >= 0 {
		l.lose()
	}
	return run, err
}

// TestLostAnswers has the connection break after the work was done: the work
// is not done twice.
func TestLostAnswers(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	var lost atomic.Int32
	lost.Store(3)
	opt := servertest.Options(t, nouns)
	opt.Nouns.Runs = lossy{nouns.Runs, func() { panic(http.ErrAbortHandler) }, &lost}
	c := servertest.Serve(t, opt, "").Client(t, time.Minute)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	run, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := nouns.Runs.List(t.Context(), "curie", "", 10)
	if err != nil || len(runs) != 1 || runs[0].ID != run.ID || lost.Load() != -1 {
		t.Errorf("%d runs, %v; %d answers were left to lose", len(runs), err, lost.Load())
	}
}

func TestPatienceEnds(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	var lost atomic.Int32
	lost.Store(1 << 30)
	opt := servertest.Options(t, nouns)
	opt.Nouns.Runs = lossy{nouns.Runs, func() { panic(http.ErrAbortHandler) }, &lost}
	c := servertest.Serve(t, opt, "").Client(t, 50*time.Millisecond)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, ""); holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("got %v", err)
	}
}

// awayRuns is a daemon whose guest is away: it says so each time.
type awayRuns struct {
	nouns.Runs
	tries *atomic.Int32
	back  int32
}

func (a awayRuns) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	if a.tries.Add(1) < a.back {
		return holt.Errorf(holt.Unavailable, "the guest agent does not answer")
	}
	return a.Runs.Follow(ctx, id, offset, emit)
}

func TestGuestAway(t *testing.T) {
	for _, back := range []int32{3, 1 << 30} {
		nouns := servertest.New(t).Nouns()
		var tries atomic.Int32
		opt := servertest.Options(t, nouns)
		opt.Nouns.Runs = awayRuns{nouns.Runs, &tries, back}
		patience := 200 * time.Millisecond
		if back == 3 {
			patience = time.Minute // a busy machine takes its time for three tries
		}
		c := servertest.Serve(t, opt, "").Client(t, patience)
		if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
			t.Fatal(err)
		}
		run, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")
		if err != nil {
			t.Fatal(err)
		}
		err = c.Runs.Follow(t.Context(), run.ID, 0, func(holt.RunEvent) error { return nil })
		if back == 3 && err != nil {
			t.Errorf("a guest that came back: %v", err)
		}
		if back > 3 && (holt.CodeOf(err) != holt.Unavailable || !strings.Contains(err.Error(), "guest agent")) {
			t.Errorf("a guest that stays away: %v", err)
		}
	}
}

// cutRuns is a daemon that is killed before a quiet run has said anything.
type cutRuns struct {
	nouns.Runs
	cuts *atomic.Int32
}

func (c cutRuns) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	if c.cuts.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	return c.Runs.Follow(ctx, id, offset, emit)
}

func (c cutRuns) Input(ctx context.Context, id holt.RunID, offset int64, r io.Reader, eof, wanted bool) (int64, error) {
	if c.cuts.Add(-1) >= 0 {
		time.Sleep(200 * time.Millisecond) // while the run wants none
		panic(http.ErrAbortHandler)
	}
	return c.Runs.Input(ctx, id, offset, r, eof, wanted)
}

// TestQuietRun: a run that says nothing is followed, and one that reads nothing is given its input, over restarts of
// the daemon that together take longer than the client's patience.
func TestQuietRun(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	var cuts atomic.Int32
	cuts.Store(8) // pauses of 2.5 s in sum
	opt := servertest.Options(t, nouns)
	opt.Nouns.Runs = cutRuns{nouns.Runs, &cuts}
	c := servertest.Serve(t, opt, "").Client(t, time.Second)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	run, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Runs.Follow(t.Context(), run.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
		t.Error(err)
	}
	if run, err = c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "sleep 1; read x; [ $x = given ]", Stdin: true}, ""); err != nil {
		t.Fatal(err)
	}
	cuts.Store(8)
	if _, err := c.Runs.Input(t.Context(), run.ID, 0, strings.NewReader("given"), true, true); err != nil {
		t.Fatal("input:", err)
	}
	exited := false
	err = c.Runs.Follow(t.Context(), run.ID, 0, func(e holt.RunEvent) error {
		exited = exited || e.Kind == holt.RunExit && e.Run.ExitCode == 0
		return nil
	})
	if err != nil || !exited {
		t.Errorf("it was not given its input: %v", err)
	}
}

// TestInputOverRestart kills the daemon while input flows: nothing is lost,
// nothing comes twice.
func TestInputOverRestart(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	arrived := make(chan struct{}, 1)
	opt.Nouns.Runs = tellInput{nouns.Runs, arrived}
	d := servertest.Serve(t, opt, "")
	c := d.Client(t, time.Minute)
	if _, err := c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	run, err := c.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: "sha256sum", Stdin: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{5}).Read(data)
	in, typed := io.Pipe()
	fed := make(chan error, 1)
	go func() { fed <- errOf(c.Runs.Input(t.Context(), run.ID, 0, in, true, false)) }()
	go func() {
		typed.Write(data)
		typed.Close()
	}()
	for range 4 {
		<-arrived
		d.Kill()
		d = servertest.Serve(t, opt, d.Socket)
	}
	for over := false; !over; {
		select {
		case <-arrived:
		case err = <-fed:
			over = true
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
	if out, _ := servertest.Collect(t, nouns, run.ID); out[holt.RunStdout] != want {
		t.Errorf("output %q, want %q", out, want)
	}
}

// tellInput says when a call for input has come.
type tellInput struct {
	nouns.Runs
	arrived chan<- struct{}
}

func (n tellInput) Input(ctx context.Context, id holt.RunID, offset int64, r io.Reader, eof, wanted bool) (int64, error) {
	select {
	case n.arrived <- struct{}{}:
	default:
	}
	return n.Runs.Input(ctx, id, offset, r, eof, wanted)
}

func TestIntegersKeepTheirDigits(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := d.Client(t, time.Minute)
	if _, err := c.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	result, err := c.Workspaces.Query(t.Context(), "curie", holt.QuerySpec{SQL: "SELECT 9007199254740993"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(result.Rows[0][0]); got != "9007199254740993" {
		t.Errorf("got %s, want 2^53 + 1", got)
	}
}
