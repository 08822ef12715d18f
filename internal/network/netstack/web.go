package netstack

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	headerLimit   = 30 * time.Second // for TLS and a request's header
	keepWeb       = 2 * time.Minute  // for an idle connection
	maxHeader     = 64 << 10         // bytes of a request
	maxAnswerHead = 256 << 10        // bytes of a response
)

// web is the HTTP server for the proxy, holt.internal, and requests to
// addresses that are allowed only for their names. One server has all
// connections; arrival says what each is for.
type web struct {
	server    *http.Server
	coming    chan net.Conn
	done      chan struct{}
	ended     chan struct{}
	transport *http.Transport
	forward   *httputil.ReverseProxy
}

// arrival is a connection of the guest and its handler.
type arrival struct {
	half
	handler http.Handler
	out     *outside // the open connection to the destination, or nil
	taken   atomic.Bool
}

func (a *arrival) Close() error {
	if a.out != nil && a.taken.CompareAndSwap(false, true) {
		a.out.Close()
	}
	return a.half.Close()
}

type arrivalKey struct{}

func (s *Stack) serveWeb(o Options) error {
	s.internal = s.withAuthority(o.Internal)
	if len(o.CA.Certificate) > 0 {
		if err := s.SetCA(o.CA); err != nil {
			return err
		}
	}
	w := &s.web
	w.coming, w.done, w.ended = make(chan net.Conn), make(chan struct{}), make(chan struct{})
	w.transport = s.newTransport(o)
	quiet := log.New(io.Discard, "", 0)
	w.forward = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: sending{w.transport}, FlushInterval: -1, ErrorLog: quiet,
		ErrorHandler: explain, ModifyResponse: maskAnswer,
	}
	w.server = &http.Server{
		ReadHeaderTimeout: headerLimit, IdleTimeout: keepWeb, MaxHeaderBytes: maxHeader, ErrorLog: quiet,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		ConnContext: arrived,
		Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			r.Context().Value(arrivalKey{}).(*arrival).handler.ServeHTTP(out, r)
		}),
	}
	go func() {
		defer close(w.ended)
		w.server.Serve(w)
	}()
	return nil
}

// arrived stores a connection's arrival in the context of its requests.
func arrived(ctx context.Context, c net.Conn) context.Context {
	if through, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = through.NetConn()
	}
	return context.WithValue(ctx, arrivalKey{}, c)
}

// serve passes a connection to the server.
func (w *web) serve(c net.Conn) {
	select {
	case w.coming <- c:
	case <-w.done:
		c.Close()
	}
}

// Accept, Close and Addr implement net.Listener.
func (w *web) Accept() (net.Conn, error) {
	select {
	case c := <-w.coming:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *web) Close() error   { return nil }
func (w *web) Addr() net.Addr { return &net.TCPAddr{IP: Gateway.AsSlice()} }

func (w *web) close() {
	if w.server == nil {
		return
	}
	close(w.done)
	w.server.Close()
	<-w.ended
	w.transport.CloseIdleConnections()
}

// own returns the handler of a port of this virtual network, or nil.
func (s *Stack) own(to netip.AddrPort) http.Handler {
	switch {
	case to.Addr() != Gateway:
		return nil
	case to.Port() == InternalPort:
		return s.internal
	case to.Port() == ProxyPort:
		return http.HandlerFunc(s.proxy)
	}
	return nil
}

// withAuthority serves the CA's certificate, and otherwise calls next.
func (s *Stack) withAuthority(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ca := s.minter.Load()
		switch {
		case r.URL.Path == "/ca.pem" && ca != nil:
			w.Header().Set("Content-Type", "application/x-pem-file")
			pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: ca.ca.Certificate[0]})
		case r.URL.Path == "/ca.pem" || next == nil:
			http.Error(w, "holt.internal has no such page", http.StatusNotFound)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// transparent forwards requests to the destination of the guest's connection,
// each only if the policy allows its host.
func (s *Stack) transparent(in half, out *outside) {
	out.SetReadDeadline(time.Time{})
	to := out.flow.to
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, ok := canonical(hostOf(r.Host))
		if !ok || r.Method == http.MethodConnect || !s.policy.Load().permits(to.Port(), []string{host}) {
			s.count.refuse(host)
			explain(w, r, &refusal{name: host})
			return
		}
		said := func(i httptrace.GotConnInfo) { s.means(i.Conn, host) }
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: said}))
		s.pass(w, r, outgoing{scheme: "http", host: r.Host, dial: to.String()})
	})
	s.web.serve(&arrival{half: in, handler: handler, out: out})
}

// means records that a request on a connection uses a name. The response is cut
// off when the policy no longer allows that name.
func (s *Stack) means(c net.Conn, name string) {
	if out, ok := c.(*outside); ok && !s.mayBe(out.flow, name) {
		out.flow.reset()
	}
}

// hostOf returns a host without its port.
func hostOf(hostport string) string {
	u := url.URL{Host: hostport}
	return u.Hostname()
}

// outgoing is the destination of a request, with its secrets.
type outgoing struct {
	scheme  string
	host    string // as in the request
	dial    string // host:port
	secrets []secret

	codes []string // encoded values that contain secrets
	err   error    // why the request is refused
}

type requestKey struct{}

// pass forwards a request. WebSocket is the only protocol upgrade allowed,
// since others may carry requests to other hosts.
func (s *Stack) pass(w http.ResponseWriter, r *http.Request, e outgoing) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		r.Header.Del("Upgrade")
	}
	http.NewResponseController(w).EnableFullDuplex() // a server may respond before it has read the whole request
	s.web.forward.ServeHTTP(&masking{w, &e}, r.WithContext(context.WithValue(r.Context(), requestKey{}, &e)))
	e.mask(w.Header()) // the trailers are sent when this returns
}

// rewrite makes the outgoing request from the incoming one: it only adds the secrets.
func rewrite(p *httputil.ProxyRequest) {
	e := p.In.Context().Value(requestKey{}).(*outgoing)
	u := *p.In.URL
	u.Scheme, u.Host, u.User = e.scheme, e.dial, nil
	p.Out.URL, p.Out.Host = &u, e.host
	for _, kept := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if all := p.In.Header.Values(kept); len(all) > 0 {
			p.Out.Header[kept] = all
		}
	}
	e.codes, e.err = add(e.secrets, p.Out.Header)
}

// sending sends the requests without an error.
type sending struct{ http.RoundTripper }

func (s sending) RoundTrip(r *http.Request) (*http.Response, error) {
	if e := r.Context().Value(requestKey{}).(*outgoing); e.err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, e.err
	}
	return s.RoundTripper.RoundTrip(r)
}

func (e *outgoing) mask(h http.Header) { mask(hidden(e.secrets, e.codes), h) }

// maskAnswer masks secrets in the headers of a response. It always returns nil.
func maskAnswer(a *http.Response) error {
	a.Request.Context().Value(requestKey{}).(*outgoing).mask(a.Header)
	return nil
}

// masking masks secrets in the headers of a response, including informational ones (1xx).
type masking struct {
	http.ResponseWriter
	outgoing *outgoing
}

func (m *masking) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *masking) WriteHeader(code int) {
	m.outgoing.mask(m.Header())
	m.ResponseWriter.WriteHeader(code)
}

// explain sends the reason for a failed request to the guest.
func explain(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusBadGateway
	var refused *refusal
	switch {
	case errors.As(err, &refused), errors.Is(err, errNotAllowed):
		code = http.StatusForbidden
	case errors.Is(err, errTooMany):
		code = http.StatusServiceUnavailable
	case errors.Is(err, errTooLong):
		code = http.StatusRequestHeaderFieldsTooLarge
	case silent(err):
		code = http.StatusGatewayTimeout
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprint(w, said(err))
}

// refusal is a name that the policy does not allow.
type refusal struct {
	name string
	why  string // "": the name itself
}

func (r *refusal) Error() string {
	if r.why != "" {
		return r.why
	}
	return "this computer's network policy does not allow " + clip(r.name)
}
