package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"holt"
	"holt/internal/metric"
)

// Paths for who operates the daemon and what watches it; they are not part of the API.
const (
	pathMetrics = "/metrics"
	pathAlive   = "/healthz"
	pathReady   = "/readyz"
	pathProfile = "/debug/pprof/"
)

// meters count calls. Labels are operations of the API and statuses of HTTP, never what a caller wrote.
type meters struct {
	calls  metric.Counters
	took   metric.Histograms
	flying metric.Gauges
	names  map[string]string // pattern of a route: operationId
}

func newMeters(r *metric.Registry) *meters {
	return &meters{
		calls:  r.Counters("holt_http_requests_total", "Calls of the API that were answered, by operation and HTTP status.", "operation", "status"),
		took:   r.Histograms("holt_http_request_seconds", "Time from a call to the end of its answer; of a stream, how long it lasted.", metric.Seconds(), "operation"),
		flying: r.Gauges("holt_http_requests_in_flight", "Calls that are being answered, streams among them."),
		names:  map[string]string{},
	}
}

// ended counts a call.
func (m *meters) ended(q *request, began time.Time) {
	m.flying.Add(-1)
	name := m.names[q.pattern]
	if name == "" {
		_, name, _ = strings.Cut(q.pattern, " ") // a route without an operationId
	}
	if name == "" {
		name = "none" // refused, or no such path
	}
	m.took.Observe(time.Since(began).Seconds(), name)
	m.calls.Add(1, name, fmt.Sprint(q.status))
}

// probes answers who asks, without a token, whether the process lives and whether it can take work. They are told
// nothing else; why it cannot is told on the socket only.
func (s *Server) probes(local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Path != pathAlive && r.URL.Path != pathReady {
			next.ServeHTTP(w, r)
			return
		}
		q := requestOf(r.Context())
		q.pattern = "GET " + r.URL.Path
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if r.URL.Path == pathReady {
			if err := s.ready(r.Context()); err != nil {
				q.err = err
				w.WriteHeader(http.StatusServiceUnavailable)
				text := "not ready"
				if local {
					text += ": " + err.Error()
				}
				fmt.Fprintln(w, text)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
}

func (s *Server) ready(ctx context.Context) error {
	if s.streams.Err() != nil {
		return holt.Errorf(holt.Unavailable, "the daemon is ending")
	}
	if s.opt.Ready == nil {
		return nil
	}
	return s.opt.Ready(ctx)
}

// operate answers who operates the daemon: metrics to whoever came through the socket or has a token of an
// operator, profiles through the socket only, since they stop the world and show memory.
func (s *Server) operate(local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := requestOf(r.Context())
		switch {
		case r.URL.Path == pathMetrics && r.Method == http.MethodGet:
			q.pattern = "GET " + pathMetrics
			if !local && !operator(r.Context()) {
				q.refuse(holt.Errorf(holt.Forbidden, "metrics cover all tenants").WithHint("use a token with the scope admin"))
				return
			}
			s.writeMetrics(w)
		case strings.HasPrefix(r.URL.Path, pathProfile) && local:
			q.pattern = "GET " + pathProfile
			profile(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// operator says whether a call over TCP is of one who may see what is everybody's.
func operator(ctx context.Context) bool {
	a, ok := holt.ActorOf(ctx)
	return ok && a.Token != "" && a.Rights.Admin
}

func (s *Server) writeMetrics(w http.ResponseWriter) {
	w.Header().Set("Content-Type", metric.ContentType)
	if s.opt.Metrics != nil {
		_ = s.opt.Metrics.Write(w) // a caller who hung up needs no answer
	}
}

func profile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, pathProfile) {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r) // and goroutine, heap, …
	}
}

// ServeMetrics answers GET /metrics, and nothing else, without a token: l must listen where only who may see
// it comes, as on loopback. It returns nil after Shutdown or Close.
func (s *Server) ServeMetrics(l net.Listener) error { return serve(s.metrics, l) }

// metricsDoor is what ServeMetrics serves.
func (s *Server) metricsDoor() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := requestOf(r.Context())
		q.pattern = "GET " + pathMetrics
		switch {
		case !s.knownHost(r.Host):
			q.refuse(holt.Errorf(holt.Forbidden, "the host name %q is not a name of this server", clip(r.Host)).WithHint("use an IP address"))
		case r.URL.Path != pathMetrics || r.Method != http.MethodGet:
			q.refuse(holt.Errorf(holt.NotFound, "this address serves only GET %s", pathMetrics))
		default:
			s.writeMetrics(w)
		}
	})
}
