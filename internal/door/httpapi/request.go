package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"holt"
	"holt/internal/api"
)

// request is what is known about one call: its id, who calls, and, as it is
// answered, what became of it. It is the response writer that handlers see.
type request struct {
	http.ResponseWriter
	ctl     *http.ResponseController
	id      string
	r       *http.Request
	body    *slowBody
	token   holt.TokenID // "" on the unix socket
	pattern string       // of the route that answers, as GET /v1/computers; "" for none
	origin  string       // of another site, which its ticket lets in
	door    string
	remote  string          // address of who calls, behind a trusted proxy without its port
	by      context.Context // with the caller; nil: unknown
	op      string          // what is asked for, and about what: for the audit log
	audit   api.Audit
	param   func(name string) string // of the path
	noun    string
	ref     string
	made    string
	often   bool // refused because its token makes too many calls
	status  int
	bytes   int64
	err     error
	quiet   bool          // it is neither in the log, unless that is told everything, nor in the audit log
	patient time.Duration // how long one write may take
	waits   atomic.Bool   // a write may take as long as its caller is there

	hijacked atomic.Bool // it became a WebSocket
}

type requestKey struct{}

// requestOf returns the request that ctx belongs to, nil outside of one.
func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// Unwrap is for http.ResponseController.
func (q *request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

func (q *request) WriteHeader(status int) {
	if q.status == 0 {
		q.status = status
		q.body.answering()
	}
	q.ResponseWriter.WriteHeader(status)
}

// Write bounds slow clients: each write has to end within q.patient.
func (q *request) Write(p []byte) (int, error) {
	if q.status == 0 {
		q.WriteHeader(http.StatusOK)
	}
	q.limit()
	n, err := q.ResponseWriter.Write(p)
	q.bytes += int64(n)
	return n, err
}

// limit bounds the next write.
func (q *request) limit() {
	if !q.waits.Load() {
		_ = q.ctl.SetWriteDeadline(time.Now().Add(q.patient)) // only a test's recorder cannot
	}
}

// wait has writes wait for a caller that reads slowly, until ctx ends or stop is called. TCP notices a caller that has died.
func (q *request) wait(ctx context.Context) (stop func()) {
	q.waits.Store(true)
	_ = q.ctl.SetWriteDeadline(time.Time{})
	never := context.AfterFunc(ctx, func() { _ = q.ctl.SetWriteDeadline(time.Now()) })
	return func() {
		q.waits.Store(false)
		if never() {
			q.limit() // a write of another goroutine may wait now
		}
	}
}

// Flush sends what was written, within q.patient.
func (q *request) Flush() {
	q.limit()
	_ = q.ctl.Flush() // a broken connection shows at the next write
}

// refuse answers with an error, with the status of its code.
func (q *request) refuse(err error) { q.fail(err, Status(holt.CodeOf(err))) }

// fail answers with err, unless the answer has begun.
func (q *request) fail(err error, status int) {
	q.err = err
	if q.status != 0 {
		return
	}
	q.Header().Set("Content-Type", "application/json")
	q.WriteHeader(status)
	_ = json.NewEncoder(q).Encode(holt.AsError(err)) // a caller who hung up needs no answer
}

// call gives next a request with an id, and logs it once when it has ended.
func (s *Server) call(door string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		q := &request{ResponseWriter: w, ctl: http.NewResponseController(w), id: requestID(r), door: door, remote: s.opt.Trusted.Remote(r), patient: s.opt.Patience}
		q.Header().Set("X-Request-Id", q.id)
		q.Header().Set("X-Content-Type-Options", "nosniff")
		q.Header().Set("Cache-Control", "no-store")
		r = r.WithContext(holt.WithRequestID(context.WithValue(r.Context(), requestKey{}, q), q.id))
		q.body = &slowBody{ReadCloser: r.Body, ctl: q.ctl, patient: s.opt.Patience, linger: time.Second}
		q.body.ended.Store(r.ContentLength == 0)
		r.Body = q.body
		q.r = r
		// A deadline of the connection's previous call must not hit this one.
		_ = q.ctl.SetWriteDeadline(time.Time{})
		s.meters.flying.Add(1)
		defer func() { s.ended(q, began, recover()) }()
		next.ServeHTTP(q, r)
	})
}

// ended logs a call. A panic is answered as internal and costs one connection,
// never the daemon.
func (s *Server) ended(q *request, began time.Time, panicked any) {
	r, level := q.r, slog.LevelInfo
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		level = slog.LevelDebug
	}
	attrs := []any{"request", q.id, "method", r.Method, "path", clip(holt.Redact(r.URL.Path))}
	if panicked != nil && panicked != http.ErrAbortHandler {
		s.opt.Log.Error("panic", append(attrs, "panic", panicked, "stack", string(debug.Stack()))...)
		if panicked = http.ErrAbortHandler; q.status == 0 {
			q.Header().Set("Connection", "close")
			q.fail(q.internal(), http.StatusInternalServerError)
			panicked = nil // it has its answer
		}
	}
	if q.token != "" {
		attrs = append(attrs, "token", q.token)
	}
	if q.door == "tcp" {
		attrs = append(attrs, "from", q.remote)
	}
	s.meters.ended(q, began)
	attrs = append(attrs, "status", q.status, "bytes", q.bytes, "ms", time.Since(began).Milliseconds())
	if q.err != nil {
		attrs = append(attrs, "code", holt.CodeOf(q.err), "error", clip(holt.Redact(q.err.Error())))
	}
	if q.quiet {
		level = slog.LevelDebug
	}
	if q.status >= 500 && r.Context().Err() == nil { // or whoever called has gone
		level = slog.LevelWarn
	}
	s.opt.Log.Log(r.Context(), level, "request", attrs...)
	s.audited(q, time.Since(began))
	_ = q.ctl.SetWriteDeadline(time.Now().Add(q.patient)) // for what net/http still holds
	if panicked != nil {
		panic(panicked) // net/http closes the connection
	}
}

// internal is what a caller may know about a defect.
func (q *request) internal() *holt.Error {
	return holt.Errorf(holt.Internal, "internal error").
		WithHint("this is a bug in holt; the daemon's log has details under request %s", q.id)
}

// requestID is the caller's own, if it is one, else a fresh one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); holt.ValidRequestID(id) {
		return id
	}
	return holt.NewRequestID()
}
