package preview

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holt"
)

// Some apps serve TLS themselves (vite with a certificate, code-server --cert). Their certificate is not verified, since
// the connection goes to the loopback of the app's computer. TLS is tried only if the answer to HTTP suggests it, since
// most apps serve HTTP and would log the handshake as an error; or before a request that cannot be repeated.
const (
	mostRepeated = 64 << 10    // maximum length of a request's body that can be repeated, bytes
	lookAgain    = time.Minute // before another try of TLS with an app that served HTTP
	helloWithin  = 5 * time.Second
)

// protocols remembers the protocols of apps.
type protocols struct {
	mu  sync.Mutex
	set map[string]protocol // by the address of the connection: computer and port
}

type protocol struct {
	known, tls bool
	until      time.Time // no further try of TLS before this time, unless the app closes the connection
}

func (s *protocols) of(addr string) protocol {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[addr]
}

func (s *protocols) is(addr string, m protocol) protocol {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil || len(s.set) >= mostSites {
		s.set = map[string]protocol{}
	}
	m.known = true
	s.set[addr] = m
	return m
}

// toApp sends requests to apps, by HTTP or HTTPS.
type toApp struct{ d *Door }

func (t toApp) RoundTrip(r *http.Request) (*http.Response, error) {
	addr := r.URL.Host
	m := t.d.protocols.of(addr)
	if !m.known && (r.ContentLength < 0 || r.ContentLength > mostRepeated) { // the request cannot be repeated
		m = protocol{tls: t.d.speaksTLS(r.Context(), addr)}
		m = t.d.protocols.is(addr, m)
	}
	body := &repeated{src: r.Body, keeps: !m.known}
	if m.tls {
		resp, err := t.d.transport.RoundTrip(body.request(r, "https"))
		if !errors.As(err, new(noTLS)) { // otherwise nothing of the request was sent
			return resp, err
		}
	}
	resp, err := t.d.transport.RoundTrip(body.request(r, "http"))
	switch suspicious := suspicious(r, resp, err); {
	case !suspicious && (m.tls || !m.known):
		t.d.protocols.is(addr, protocol{})
		return resp, err
	case !suspicious || err == nil && time.Now().Before(m.until):
		return resp, err
	case !t.d.speaksTLS(r.Context(), addr):
		t.d.protocols.is(addr, protocol{until: time.Now().Add(lookAgain)})
		return resp, err
	}
	t.d.protocols.is(addr, protocol{tls: true})
	if err == nil {
		resp.Body.Close()
	}
	if !body.whole() {
		return nil, holt.Errorf(holt.Unavailable, "the app switched from HTTP to TLS during this request").WithHint("send the request again")
	}
	return t.d.transport.RoundTrip(body.request(r, "https"))
}

// suspicious reports whether the answer to HTTP suggests that the app serves TLS: it closed the connection, did not
// answer in HTTP, answered 400, as some servers do to HTTP at a TLS port, or redirects to https at the same host.
func suspicious(r *http.Request, resp *http.Response, err error) bool {
	if err != nil {
		return !errors.As(err, new(noConnection)) && r.Context().Err() == nil
	}
	return resp.StatusCode == http.StatusBadRequest || leadsToHTTPS(resp, r.Host)
}

// leadsToHTTPS reports whether an answer redirects to https at the same host.
func leadsToHTTPS(resp *http.Response, host string) bool {
	to, err := url.Parse(resp.Header.Get("Location"))
	return err == nil && resp.StatusCode/100 == 3 && to.Scheme == "https" && strings.EqualFold(to.Host, host)
}

// noTLS is the error of a failed handshake.
type noTLS struct{ error }

func (e noTLS) Unwrap() error { return e.error }

// dialTLS makes a TLS connection of the pool.
func (d *Door) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	far, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	hello, cancel := context.WithTimeout(ctx, helloWithin) // its end closes the connection, since that has no deadlines
	defer cancel()
	return secure(hello, far)
}

// secure completes a handshake as the client.
func secure(ctx context.Context, far net.Conn) (net.Conn, error) {
	secured := tls.Client(far, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
	if err := secured.HandshakeContext(ctx); err != nil {
		far.Close()
		return nil, noTLS{err}
	}
	return tlsConn{secured, far}, nil
}

// tlsConn is a TLS connection over one without deadlines.
type tlsConn struct {
	*tls.Conn
	far net.Conn
}

// Close sends close_notify, and closes the connection after lastWord if the app does not read it.
func (c tlsConn) Close() error {
	defer time.AfterFunc(lastWord, func() { c.far.Close() }).Stop()
	return c.Conn.Close()
}

// speaksTLS reports whether an app completes a TLS handshake.
func (d *Door) speaksTLS(ctx context.Context, addr string) bool {
	far, err := d.dialTLS(ctx, "tcp", addr)
	if err == nil {
		far.Close()
	}
	return err == nil
}

// repeated is the body of a request that can be read again, as long as all bytes that were read are kept.
type repeated struct {
	src   io.Reader // nil: there is no body
	keeps bool      // mostRepeated bytes
	lost  atomic.Bool

	mu   sync.Mutex
	kept []byte
	read int
	err  error // of src
}

// request returns r with another scheme, and with the body from its start.
func (b *repeated) request(r *http.Request, scheme string) *http.Request {
	one := *r
	to := *r.URL
	to.Scheme = scheme
	one.URL = &to
	if b.src != nil {
		one.Body = &reading{of: b}
	}
	return &one
}

// whole reports whether the body can be read again.
func (b *repeated) whole() bool { return !b.lost.Load() }

// reading reads the body from its start. Two may read concurrently, since a transport may still read after an early
// answer: bytes that one reads are kept for the other, or the other fails.
type reading struct {
	of *repeated
	at int
}

func (r *reading) Read(p []byte) (int, error) {
	b := r.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.at < len(b.kept) {
		n := copy(p, b.kept[r.at:])
		r.at += n
		return n, nil
	}
	if r.at < b.read {
		return 0, io.ErrUnexpectedEOF
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	switch {
	case n == 0:
	case b.keeps && !b.lost.Load() && b.read+n <= mostRepeated:
		b.kept = append(b.kept, p[:n]...)
	default:
		b.lost.Store(true)
	}
	b.err = err
	b.read += n
	r.at += n
	return n, err
}

func (r *reading) Close() error { return nil } // src belongs to the server
