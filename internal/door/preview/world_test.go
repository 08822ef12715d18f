package preview

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/artifact"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// world is two fake computers, whose ports are listeners of this process, and a real store and door on a real listener.
// Tests with real computers are in package daemon and in e2e.
type world struct {
	t         testing.TB
	store     *Store
	door      *Door
	tokens    *access.Tokens
	artifacts *artifact.Store
	addr      string // of the door
	log       lockedBuffer
	failAt    atomic.Pointer[string] // a step of artifacts
	later     atomic.Int64           // nanoseconds by which the clock of links is ahead
	audit     []holt.AuditEntry      // with mu

	mu        sync.Mutex
	computers map[holt.ComputerID]*holt.Computer
	ports     map[string]string // what COMPUTER:PORT leads to
	conns     map[holt.ComputerID][]net.Conn
	wakes     int
	uses      map[string]int // open ones, by detail
	hold      chan struct{}  // not nil: a wake waits for it
	most      int            // connections to each computer; 0: any number
	reached   map[string]int // as many are open to each
}

const (
	einstein = holt.ComputerID("cmp_aaaaaaaaaaaaaaaa")
	curie    = holt.ComputerID("cmp_bbbbbbbbbbbbbbbb")
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// openWorld opens a door; change may change its options.
func openWorld(t testing.TB, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, ports: map[string]string{}, conns: map[holt.ComputerID][]net.Conn{}, uses: map[string]int{}, reached: map[string]int{}, computers: map[holt.ComputerID]*holt.Computer{
		einstein: {ID: einstein, Name: "einstein", State: holt.ComputerRunning, Tenant: holt.DefaultTenant},
		curie:    {ID: curie, Name: "curie", State: holt.ComputerRunning, Tenant: "acme"},
	}}
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), access.Schema+computer.Schema+Schema+artifact.Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.tokens = access.New(d)
	now := func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }
	address := func(l holt.ArtifactLink, secret string) (string, string, error) { return w.store.LinkURLs(l, secret) }
	if w.artifacts, err = artifact.Open(t.Context(), artifact.Config{DB: d, Keys: idempotency.New(d), Address: address, Now: now, Log: log, Fail: w.fails}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.artifacts.Close() })
	record := func(_ context.Context, e holt.AuditEntry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.audit = append(w.audit, e)
	}
	if w.store, err = Open(Config{Links: w.artifacts, Record: record, DB: d, Keys: idempotency.New(d), KeyFile: filepath.Join(t.TempDir(), "key"), Computers: w, Ports: w, Tokens: w.tokens, Log: log, Hosts: []string{"API.Example.com.", "hub"}}); err != nil {
		t.Fatal(err)
	}
	opt := Options{Store: w.store, Log: log}
	if change != nil {
		change(&opt)
	}
	w.door = NewDoor(opt)
	w.addr = w.serve(Serving{API: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "the API") })})
	return w
}

// fails ends the work of artifacts at the step of the test's choice.
func (w *world) fails(point string) error {
	if at := w.failAt.Load(); at != nil && *at == point {
		return errors.New("the daemon is killed")
	}
	return nil
}

// serve has the door answer on one more listener, until the test ends.
func (w *world) serve(opt Serving) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.ListensAt(l.Addr(), opt.TLS != nil)
	served := make(chan error, 1)
	go func() { served <- w.door.Serve(l, opt) }()
	w.t.Cleanup(func() {
		w.door.Close()
		if err := <-served; err != nil {
			w.t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for detail, n := range w.uses {
			if n != 0 {
				w.t.Errorf("%d uses left: %s", n, detail)
			}
		}
		if w.store.streams.all != 0 || w.door.waker.waiting != 0 {
			w.t.Errorf("%d streams and %d waiting are left", w.store.streams.all, w.door.waker.waiting)
		}
	})
	return l.Addr().String()
}

func (w *world) Get(ctx context.Context, ref string) (holt.Computer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := holt.Confined(ctx)
	for _, c := range w.computers {
		if (ref == string(c.ID) || ref == c.Name && c.Tenant == holt.TenantOf(ctx)) && (in == "" || in == c.Tenant) {
			return *c, nil
		}
	}
	return holt.Computer{}, holt.Errorf(holt.NotFound, "there is no computer %q", ref)
}

func (w *world) Wake(ctx context.Context, ref string, _ holt.UseKind, detail string) (holt.Computer, func(), error) {
	c, err := w.Get(ctx, ref)
	if err != nil {
		return c, nil, err
	}
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if c.State != holt.ComputerRunning && hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return c, nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.computers[c.ID]; one.State != holt.ComputerRunning {
		one.State = holt.ComputerRunning
		w.wakes++
	}
	w.uses[detail]++
	return c, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.uses[detail]--
	}), nil
}

func (w *world) List(_ context.Context, ref string) (list []holt.Listener, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.ports {
		if id, port, _ := strings.Cut(at, ":"); id == ref {
			n, _ := holt.ParsePort(port)
			list = append(list, holt.Listener{Protocol: "tcp", Port: n})
		}
	}
	return list, nil
}

type tcpPort struct {
	*net.TCPConn
	left func()
}

// Read says that a connection was reset as the guest agent says it.
func (p tcpPort) Read(b []byte) (int, error) {
	n, err := p.TCPConn.Read(b)
	if errors.Is(err, syscall.ECONNRESET) {
		err = holt.Errorf(holt.Unavailable, "the connection was broken off in the computer")
	}
	return n, err
}

func (p tcpPort) Close() error {
	defer p.left()
	return p.TCPConn.Close()
}

func (w *world) Reach(ctx context.Context, ref string, to holt.PortAddress) (holt.PortConn, error) {
	w.mu.Lock()
	addr, listens := w.ports[fmt.Sprintf("%s:%d", ref, to.Port)]
	runs := w.computers[holt.ComputerID(ref)].State == holt.ComputerRunning
	full := w.most > 0 && w.reached[ref] >= w.most
	w.mu.Unlock()
	if full {
		return nil, holt.Errorf(holt.TooMany, "%d connections are open", w.most)
	}
	if !runs {
		return nil, holt.Errorf(holt.Unavailable, "it does not run")
	}
	if !listens {
		return nil, holt.Errorf(holt.Unavailable, "nothing listens at port %d", to.Port)
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[holt.ComputerID(ref)] = append(w.conns[holt.ComputerID(ref)], c)
	w.reached[ref]++
	return tcpPort{c.(*net.TCPConn), sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reached[ref]--
	})}, nil
}

// pause has a computer not run, which ends the connections to it.
func (w *world) pause(id holt.ComputerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.computers[id].State = holt.ComputerPaused
	for _, c := range w.conns[id] {
		c.Close()
	}
	w.conns[id] = nil
}

// app has a handler listen at a port of a computer.
func (w *world) app(id holt.ComputerID, port int, h http.HandlerFunc) {
	w.t.Helper()
	l := w.listen(id, port)
	s := &http.Server{Handler: h}
	go s.Serve(l)
	w.t.Cleanup(func() { s.Close() })
}

// raw has something that is no server of HTTP answer each connection at a port.
func (w *world) raw(id holt.ComputerID, port int, answer func(net.Conn)) {
	l := w.listen(id, port)
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
}

func (w *world) listen(id holt.ComputerID, port int) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[fmt.Sprintf("%s:%d", id, port)] = l.Addr().String()
	return l
}

// link makes a link to a port.
func (w *world) link(ref string, port int) holt.PreviewLink {
	w.t.Helper()
	l, err := w.store.Link(w.t.Context(), ref, port, holt.PreviewLinkSpec{})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) set(ref string, port int, public bool) {
	w.t.Helper()
	if _, err := w.store.Set(w.t.Context(), ref, port, holt.PreviewSpec{Public: &public}); err != nil {
		w.t.Fatal(err)
	}
}

// client dials the door whatever the host is, and follows no redirect.
func (w *world) client() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", w.addr)
	}, DisableCompression: true}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
}

// ask sends a request with headers, given as names and values.
func (w *world) ask(method, url string, body io.Reader, headers ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	resp, err := w.client().Do(r)
	if err != nil {
		w.t.Fatal(method, url, err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// text sends a request and returns the status and the body of its answer.
func (w *world) text(method, url string, headers ...string) (int, string) {
	w.t.Helper()
	resp := w.ask(method, url, nil, headers...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// bytes sends bytes as they are, and returns all that comes back until the door closes.
func (w *world) bytes(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, text)
	b, _ := io.ReadAll(bufio.NewReader(c)) // a reset is an end, too
	return string(b)
}
