package preview

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holt"
	"holt/internal/access"
)

// Options configure a [Door].
type Options struct {
	Store    *Store
	Trusted  access.Proxies // trusted proxies
	Failures *access.Rate   // calls with an invalid API token, by client; nil: no limit
	Patience time.Duration  // timeout of one read or write of a slow client; 0: 5 minutes
	Log      *slog.Logger   // nil: slog.Default()
}

// Door answers on any number of TCP listeners.
type Door struct {
	opt       Options
	store     *Store
	log       *slog.Logger
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	waker     waker
	leases    leases
	sites     sites
	protocols protocols
	visitors  seenSet
	refusals  seenSet // refused visitors
	downloads access.Counts
	idled     atomic.Int64 // the second in which idle connections were closed

	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup // requests, upgraded connections, and wakes
	mu      sync.Mutex
	closed  bool
	servers []*http.Server
}

func NewDoor(opt Options) *Door {
	if opt.Patience == 0 {
		opt.Patience = 5 * time.Minute
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	d := &Door{opt: opt, store: opt.Store, log: opt.Log, waker: newWaker()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.transport = d.newTransport()
	d.proxy = d.newProxy()
	return d
}

// Serving configures a listener.
type Serving struct {
	API http.Handler // serves names that are not previews; nil: a page about previews
	TLS *tls.Config  // nil: none
}

// Serve serves a listener. It returns nil after Shutdown or Close. Call [Store.ListensAt] first, so that links have the
// address of the listener.
func (d *Door) Serve(l net.Listener, opt Serving) error {
	h := &http.Server{
		Handler:           d.dispatch(opt.API),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: d.opt.Patience}, // a stream's deadline does not apply while another stream writes
		TLSConfig:         d.versions(opt),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	d.mu.Lock()
	closed := d.closed
	d.servers = append(d.servers, h)
	d.mu.Unlock()
	if closed {
		return l.Close()
	}
	serve := h.Serve
	if opt.TLS != nil {
		serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// versions restricts names that are not previews to HTTP/1.1, which the API's deadlines and WebSockets need.
func (d *Door) versions(opt Serving) *tls.Config {
	if opt.TLS == nil || opt.API == nil {
		return opt.TLS
	}
	both, one := opt.TLS, opt.TLS.Clone()
	one.NextProtos = slices.DeleteFunc(slices.Clone(one.NextProtos), func(p string) bool { return p == "h2" })
	chooses := both.Clone()
	chooses.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if s, _, err := d.site(hello.Context(), strings.ToLower(hello.ServerName)); err == nil && s.named {
			return both, nil
		}
		return one, nil
	}
	return chooses
}

// ListensAt sets the address of the listener for previews. Only the first call has an effect.
func (s *Store) ListensAt(addr net.Addr, tls bool) {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	if _, port, err := net.SplitHostPort(addr.String()); err == nil {
		s.listensAt(scheme, port)
	}
}

// Shutdown refuses new requests, ends those to computers, and waits for the API's calls until ctx ends; then it cuts
// them.
func (d *Door) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	servers := d.servers
	d.mu.Unlock()
	d.cancel()
	var errs []error
	for _, h := range servers {
		err := h.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, h.Close())
		}
		errs = append(errs, err)
	}
	d.settle()
	return errors.Join(errs...)
}

// settle waits for all requests and wakes.
func (d *Door) settle() {
	d.wg.Wait()
	d.leases.end()
	d.transport.CloseIdleConnections()
}

// Close cuts all requests at once.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	servers := d.servers
	d.mu.Unlock()
	d.cancel()
	var errs []error
	for _, h := range servers {
		errs = append(errs, h.Close())
	}
	d.settle()
	return errors.Join(errs...)
}

// dispatch separates requests for previews from calls of the API, by host name.
func (d *Door) dispatch(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostName(r)
		s, found, err := d.cachedSite(r.Context(), host)
		if !s.named && err == nil && api != nil {
			if r.ProtoMajor > 1 { // the client reuses a preview's connection, or did not use TLS
				w.WriteHeader(http.StatusMisdirectedRequest)
				return
			}
			api.ServeHTTP(w, r)
			return
		}
		d.mu.Lock()
		if closed := d.closed; closed {
			d.mu.Unlock()
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		d.wg.Add(1)
		d.mu.Unlock()
		defer d.wg.Done()
		d.call(w, r, host, s, found, err)
	})
}

// site is the port that a host shows.
type site struct {
	named    bool // the host is a name for previews, whether the computer exists or not
	links    bool // the host is that of links to artifacts
	computer holt.Computer
	port     int
	host     string
}

// site returns the port that a host shows. found is false if the computer does not exist. Names of the API, and those
// below the domain of previews, take precedence over added domains.
func (d *Door) site(ctx context.Context, host string) (s site, found bool, err error) {
	s.host = host
	if d.store.cfg.Place.Off {
		return s, false, nil
	}
	if d.store.ofLinks(host) {
		s.named, s.links = true, true
		return s, false, nil
	}
	h, ok := ParseHost(host, d.store.cfg.Place.Domain)
	switch n := addressOf(host); {
	case n != 0:
		if h, ok, err = d.store.table.atAddress(ctx, n); !ok {
			s.named = true
			return s, false, err
		}
	case d.store.ofAPI(host):
		return s, false, nil
	case !ok:
		if _, bad := holt.ParseDomain(host); bad != nil || d.store.ofPreviews(host) {
			return s, false, nil
		}
		one, known, err := d.store.table.domain(ctx, host)
		if err != nil || !known {
			return s, false, err
		}
		h = Host{Port: one.port, ID: one.computer}
	}
	s.named, s.port = true, h.Port
	s.computer, err = d.store.find(ctx, h)
	if holt.CodeOf(err) == holt.NotFound {
		return s, false, nil
	}
	return s, err == nil, err
}

// call answers a request for a preview, and logs it.
func (d *Door) call(w http.ResponseWriter, r *http.Request, host string, s site, found bool, err error) {
	a := &answer{ResponseWriter: w, ctl: http.NewResponseController(w), id: holt.NewRequestID(), began: time.Now(), patient: d.opt.Patience, site: s}
	_ = a.ctl.SetWriteDeadline(time.Time{}) // remove the deadline of an earlier request
	_ = a.ctl.EnableFullDuplex()            // an app may answer before it has read the request
	a.from = d.originOf(r, host)
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), answerKey{}, a))
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	defer context.AfterFunc(ctx, a.cut)()
	r = r.WithContext(ctx)
	body := &patientBody{ReadCloser: r.Body, ctl: a.ctl, patient: d.opt.Patience, trailer: r.Trailer}
	r.Body = body
	a.r, a.body = r, body
	defer func() {
		defer body.end()
		d.ended(a, recover())
	}()
	switch {
	case err != nil:
		d.failed(a, r, s, visitor{}, err)
	case !s.named:
		d.noPreview(a, r)
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		d.refuse(a, r, http.StatusMethodNotAllowed, holt.Errorf(holt.InvalidArgument, "the method %s is not supported", holt.Clip(r.Method, 32)))
	case s.links && r.Method != http.MethodGet && r.Method != http.MethodHead:
		d.refuse(a, r, http.StatusMethodNotAllowed, holt.Errorf(holt.InvalidArgument, "a link takes GET and HEAD only"))
	case s.links:
		d.download(a, r)
	default:
		d.show(a, r, s, found)
	}
}

// show admits a request, wakes the computer and forwards the request.
func (d *Door) show(a *answer, r *http.Request, s site, found bool) {
	c := credentialsOf(r)
	ctx, one, leave, err := d.store.streams.enter(r.Context(), s.computer, s.port, s.host)
	if err != nil {
		d.failed(a, r, s, visitor{}, err)
		return
	}
	defer leave()
	v, release, err := d.visitor(ctx, c, s, found)
	if err != nil {
		a.refused = holt.CodeOf(err) == holt.Unauthenticated && c.shown() || err == errNoSuch
		d.failed(a, r, s, visitor{}, err)
		return
	}
	defer release()
	a.visitor = v
	if err := d.store.streams.admit(s.computer.ID, one, v.how); err != nil {
		d.failed(a, r, s, v, err)
		return
	}
	if c.link != "" && browses(r) {
		d.open(a, r, v, a.from)
		return
	}
	if v.cookie && d.crossSite(r, s, a.from) {
		d.refuse(a, r, http.StatusForbidden, holt.Errorf(holt.Forbidden, "a page of another site made this request").WithHint("a program can send the link's token as %s", tokenHeader))
		return
	}
	defer context.AfterFunc(v.ctx, a.cut)()
	r = r.WithContext(v.ctx)
	done, err := d.use(r, s, v)
	if err != nil {
		d.failed(a, r, s, v, err)
		return
	}
	defer done()
	d.logFirst(a)
	ctx, cancel := a.bounded(r.Context())
	defer cancel(nil)
	d.proxy.ServeHTTP(a, r.WithContext(ctx))
}

func (d *Door) visitor(ctx context.Context, c credentials, s site, found bool) (visitor, context.CancelFunc, error) {
	if c.secret != "" && !isLink(c.secret) {
		return d.byAPIToken(ctx, c.secret, s, found)
	}
	if !found {
		return visitor{}, nil, errNoAccess
	}
	one, err := d.store.table.get(ctx, s.computer.ID, s.port)
	if err != nil {
		return visitor{}, nil, err
	}
	return d.admit(ctx, c, s, one)
}

// ended logs a request. It recovers from a panic, which ends only the connection.
func (d *Door) ended(a *answer, panicked any) {
	attrs := []any{"request", a.id, "host", holt.Clip(a.site.host, 256), "method", holt.Clip(a.r.Method, 32), "client", a.from.client}
	if a.site.links { // the path has a secret
		attrs = append(attrs, "link", a.link.ID)
	} else {
		attrs = append(attrs, "path", holt.Clip(a.r.URL.Path, 256))
	}
	if panicked != nil && panicked != http.ErrAbortHandler {
		d.log.Error("panic", append(attrs, "panic", panicked, "stack", string(debug.Stack()))...)
		if panicked = http.ErrAbortHandler; a.status == 0 {
			d.refuse(a, a.r, http.StatusInternalServerError, holt.Errorf(holt.Internal, "a bug in holt").WithHint("the daemon's log has the details under request %s", a.id))
			panicked = nil
		}
	}
	if a.site.computer.ID != "" {
		attrs = append(attrs, "computer", a.site.computer.ID, "port", a.site.port)
	}
	if a.visitor.how != byNobody {
		attrs = append(attrs, "by", a.visitor.how)
	}
	if a.visitor.as != "" && !a.site.links {
		attrs = append(attrs, "token", a.visitor.as)
	}
	attrs = append(attrs, "status", a.status, "bytes", a.bytes, "ms", time.Since(a.began).Milliseconds())
	if a.err != nil {
		attrs = append(attrs, "code", holt.CodeOf(a.err), "error", holt.Clip(a.err.Error(), 256))
	}
	level := slog.LevelDebug
	if a.status == http.StatusSwitchingProtocols {
		level = slog.LevelInfo
	}
	d.log.Log(a.r.Context(), level, "preview", attrs...)
	switch {
	case a.status == http.StatusSwitchingProtocols:
		d.record(a, "connect", "ok", time.Since(a.began))
	case a.refused && d.refusals.add(firstOf(a)): // the first of each client and reason
		d.record(a, "visit", string(holt.CodeOf(a.err)), time.Since(a.began))
	}
	a.end()
	if panicked != nil {
		panic(panicked) // net/http closes the connection
	}
}

// record writes an audit entry. It has no path, since paths of apps can have secrets.
func (d *Door) record(a *answer, op, code string, took time.Duration) {
	if d.store.cfg.Record == nil {
		return
	}
	ctx := a.r.Context()
	if a.visitor.ctx != nil {
		ctx = a.visitor.ctx // with the actor of the token
	}
	e := holt.AuditEntry{Door: "preview", Remote: a.from.client.String(), Op: op, Noun: "previews", Code: code, Request: a.id, Status: a.status, TookMS: float64(took.Microseconds()) / 1000}
	if a.site.computer.ID != "" {
		e.Ref = fmt.Sprintf("%s port=%d", a.site.computer.ID, a.site.port)
	}
	if a.visitor.how != byToken { // the maker of a link is not the visitor
		e.Actor, e.Name = "nobody", string(a.visitor.how)
		if a.site.computer.ID != "" {
			e.Tenant = tenantOf(a.site.computer)
		}
	}
	if a.site.links {
		e.Noun, e.Tenant = "artifacts", a.tenant
		if a.link.ID != "" {
			e.Ref = fmt.Sprintf("%s link=%s", a.link.ArtifactID, a.link.ID)
		}
	}
	d.store.cfg.Record(context.WithoutCancel(ctx), e)
}

// seenSet remembers visitors that were recorded.
type seenSet struct {
	mu   sync.Mutex
	seen map[first]bool
}

type first struct {
	computer holt.ComputerID
	port     int
	how      admission
	as       string
	client   netip.Addr
}

const mostFirsts = 4096 // beyond this the set is cleared

func firstOf(a *answer) first {
	return first{a.site.computer.ID, a.site.port, a.visitor.how, a.visitor.as, a.from.client}
}

// add adds a visitor and reports whether it is new.
func (f *seenSet) add(key first) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[key] {
		return false
	}
	if f.seen == nil || len(f.seen) >= mostFirsts {
		f.seen = map[first]bool{}
	}
	f.seen[key] = true
	return true
}

// logFirst records a new visitor of a preview.
func (d *Door) logFirst(a *answer) {
	key := firstOf(a)
	if !d.visitors.add(key) {
		return
	}
	d.record(a, "visit", "begun", 0)
	d.log.Info("new visitor of a preview", "request", a.id, "computer", key.computer, "port", key.port, "by", key.how, "token", key.as, "client", key.client)
}
