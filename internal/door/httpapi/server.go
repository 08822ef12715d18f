// Package httpapi is the HTTP door: it decodes a call, authenticates the
// caller, calls a noun and encodes the answer. It decides nothing itself: what
// a call means is in package computer, workspace and so on (see [Nouns]).
//
// Form: JSON under /v1, described by /openapi.json (OpenAPI 3.1, generated
// from the Go types) and /docs. Errors are a [holt.Error] with the status of
// [Status]. File contents and standard input are raw bodies, streamed; output
// of runs is server-sent events whose id is the offset to continue from; terminals
// are WebSockets.
//
// Doors: the unix socket asks no token, its permissions are the check; TCP
// asks a bearer token of everyone. Calls from other sites' pages are refused
// on both.
//
// Traps: huma's BodyReadTimeout must stay off (-1): it sets a read deadline
// and never lifts it, so that a handler that works longer is cancelled; see
// slowBody. huma ignores embedded types that are not exported, so the parts of
// calls (Keyed, Paging, …) are. huma's own /openapi routes fill their cache without a lock and its
// /docs loads scripts from elsewhere: both are replaced.
//
// Size: Server has more methods than the house's 25: each registers one
// call, and a type a noun would hold the same [nouns.Set] and nothing else.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holt/internal/access"
	"holt/internal/api"
	"holt/internal/audit"
	"holt/internal/metric"
	"holt/internal/nouns"
)

// Options configure a [Server].
type Options struct {
	Nouns     nouns.Set
	Authorize api.Authorizer // who may make which call; must not be nil
	Tokens    Tokens         // nil: no one may come over TCP
	Calls     *access.Rate   // of each token; nil: any number
	Tenants   *access.Rate   // of all tokens of a tenant but an admin's; nil: any number
	Open      int            // calls of a token that are open at once; of a tenant's twice as many, of all but admins' four times; 0: [mostOpen]
	Failures  *access.Rate   // of callers without a valid token, by where they come from; nil: any number
	Trusted   access.Proxies // proxies in front of TCP whose word on who calls is taken
	Audit     Auditor        // nil: nothing is written down of who did what
	Hosts     []string       // host names by which TCP callers may reach it, besides IP addresses and localhost
	Version   string         // of holt, in the OpenAPI document
	Log       *slog.Logger   // nil: slog.Default()
	Patience  time.Duration  // how long one read or write may wait for a slow caller; 0: one minute
	Beat      time.Duration  // how often a quiet stream shows that it lives; 0: 15 s

	Metrics *metric.Registry            // shown at /metrics, gets the server's; nil: there are none
	Ready   func(context.Context) error // why no work can be taken, for /readyz; nil: it always can
}

// Server answers the API on any number of listeners.
type Server struct {
	opt        Options
	registry   *api.Registry
	huma       huma.API
	document   []byte // the OpenAPI document
	local, tcp *http.Server
	metrics    *http.Server // of ServeMetrics
	meters     *meters
	open       access.Counts // calls over TCP

	streams    context.Context // ended by Shutdown
	endStreams context.CancelFunc
	cutting    context.Context // ended by Close
	cut        context.CancelFunc
	sockets    sync.WaitGroup // WebSockets, which net/http does not wait for
	tickets    tickets
	editing    editing
	own        ownRates
	often      audit.Seldom // tokens that make too many calls
	changing   sync.Map     // of holt.ComputerID: what computers that change themselves are at, *ownChange, see own.go
}

// New returns a server. It does no I/O.
func New(opt Options) *Server {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Patience == 0 {
		opt.Patience = time.Minute
	}
	if opt.Open == 0 {
		opt.Open = mostOpen
	}
	if opt.Beat == 0 {
		opt.Beat = 15 * time.Second
	}
	s := &Server{opt: opt, own: newOwnRates(), open: access.Counts{What: "calls"}, meters: newMeters(opt.Metrics)}
	s.registry = api.NewRegistry(opt.Authorize)
	s.cutting, s.cut = context.WithCancel(context.Background())
	s.streams, s.endStreams = context.WithCancel(s.cutting)
	mux := http.NewServeMux()
	s.document = s.routes(mux)
	inner := noSuchPath(mux)
	s.local = s.httpServer(s.call("socket", s.redeem(s.probes(true, s.person(sameOrigin(s.operate(true, inner)))))))
	s.tcp = s.httpServer(s.call("tcp", s.redeem(s.probes(false, sameOrigin(s.guard(s.operate(false, inner)))))))
	s.metrics = s.httpServer(s.call("metrics", sameOrigin(s.metricsDoor())))
	return s
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
	}
}

// Registry is what other doors call endpoints through.
func (s *Server) Registry() *api.Registry { return s.registry }

// Document returns the OpenAPI document, JSON.
func (s *Server) Document() []byte { return s.document }

// ServeLocal answers callers of a unix socket, who need no token: the socket's
// permissions are the check. It returns nil after Shutdown or Close.
func (s *Server) ServeLocal(l net.Listener) error { return serve(s.local, l) }

// TCP is what ServeTCP answers with, for whoever has a listener that is for more.
func (s *Server) TCP() http.Handler { return s.tcp.Handler }

// ServeTCP answers callers from anywhere, each with a bearer token, from
// loopback too. It returns nil after Shutdown or Close.
func (s *Server) ServeTCP(l net.Listener) error { return serve(s.tcp, l) }

func serve(h *http.Server, l net.Listener) error {
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown refuses new calls, ends streams (their clients come again) and
// waits for the other calls in flight, until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endStreams()
	defer context.AfterFunc(ctx, s.cut)()
	err := errors.Join(s.local.Shutdown(ctx), s.tcp.Shutdown(ctx), s.metrics.Shutdown(ctx))
	s.sockets.Wait()
	return err
}

// Close cuts every call at once.
func (s *Server) Close() error {
	s.cut()
	return errors.Join(s.local.Close(), s.tcp.Close(), s.metrics.Close())
}

// stream returns a context for a call without a time limit: it ends with
// the call and at Shutdown.
func (s *Server) stream(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.streams, cancel)
	return ctx, func() { stop(); cancel() }
}
