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

// Some apps speak TLS themselves (vite with a certificate, code-server --cert). The certificate is not checked: the connection is
// one to the loopback of the app's own computer. An app is offered TLS only when its answer to HTTP gives reason to, since
// most speak HTTP and would log the offer as garbage; and before a request that could not be sent a second time.
const (
	mostRepeated = 64 << 10    // bytes of a request's body that can be sent a second time
	lookAgain    = time.Minute // after an app that answers 400 or leads to https was found to speak HTTP
	helloWithin  = 5 * time.Second
)

// spoken is what the apps at ports speak, as far as it is known.
type spoken struct {
	mu  sync.Mutex
	set map[string]manner // by computer and port, as a connection's address has them
}

type manner struct {
	known, tls bool
	until      time.Time // when an app that speaks HTTP may be asked again for TLS, unless it breaks off
}

func (s *spoken) of(addr string) manner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[addr]
}

func (s *spoken) is(addr string, m manner) manner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil || len(s.set) >= mostSites {
		s.set = map[string]manner{}
	}
	m.known = true
	s.set[addr] = m
	return m
}

// toApp sends requests to apps, by HTTP or, to those that speak it, by TLS.
type toApp struct{ d *Door }

func (t toApp) RoundTrip(r *http.Request) (*http.Response, error) {
	addr := r.URL.Host
	m := t.d.spoken.of(addr)
	if !m.known && (r.ContentLength < 0 || r.ContentLength > mostRepeated) { // it cannot be sent a second time
		m = manner{tls: t.d.speaksTLS(r.Context(), addr)}
		m = t.d.spoken.is(addr, m)
	}
	body := &repeated{src: r.Body, keeps: !m.known}
	if m.tls {
		resp, err := t.d.transport.RoundTrip(body.request(r, "https"))
		if !errors.As(err, new(noTLS)) { // else nothing of the request was sent
			return resp, err
		}
	}
	resp, err := t.d.transport.RoundTrip(body.request(r, "http"))
	switch suspicious := suspicious(r, resp, err); {
	case !suspicious && (m.tls || !m.known):
		t.d.spoken.is(addr, manner{})
		return resp, err
	case !suspicious || err == nil && time.Now().Before(m.until):
		return resp, err
	case !t.d.speaksTLS(r.Context(), addr):
		t.d.spoken.is(addr, manner{until: time.Now().Add(lookAgain)})
		return resp, err
	}
	t.d.spoken.is(addr, manner{tls: true})
	if err == nil {
		resp.Body.Close()
	}
	if !body.whole() {
		return nil, holt.Errorf(holt.Unavailable, "the app switched to TLS while this request was sent to it without TLS").WithHint("send the request again")
	}
	return t.d.transport.RoundTrip(body.request(r, "https"))
}

// suspicious says that an app that was sent HTTP may speak TLS: it broke off, answered with what is no HTTP, or says that
// the request is malformed, as some servers call HTTP where they expect TLS, or leads to the same host by https.
func suspicious(r *http.Request, resp *http.Response, err error) bool {
	if err != nil {
		return !errors.As(err, new(noConnection)) && r.Context().Err() == nil
	}
	return resp.StatusCode == http.StatusBadRequest || leadsToHTTPS(resp, r.Host)
}

// leadsToHTTPS says that an answer leads to the same host by https.
func leadsToHTTPS(resp *http.Response, host string) bool {
	to, err := url.Parse(resp.Header.Get("Location"))
	return err == nil && resp.StatusCode/100 == 3 && to.Scheme == "https" && strings.EqualFold(to.Host, host)
}

// noTLS is why a handshake failed.
type noTLS struct{ error }

func (e noTLS) Unwrap() error { return e.error }

// dialTLS makes a connection of the pool to an app that speaks TLS.
func (d *Door) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	far, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	hello, cancel := context.WithTimeout(ctx, helloWithin) // its end closes the connection, which has no deadlines
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

// tlsConn is a connection by TLS over one without deadlines.
type tlsConn struct {
	*tls.Conn
	far net.Conn
}

// Close says so to the app, which has a snapshot to take that: one that reads nothing holds nobody up.
func (c tlsConn) Close() error {
	defer time.AfterFunc(lastWord, func() { c.far.Close() }).Stop()
	return c.Conn.Close()
}

// speaksTLS says whether an app completes a handshake.
func (d *Door) speaksTLS(ctx context.Context, addr string) bool {
	far, err := d.dialTLS(ctx, "tcp", addr)
	if err == nil {
		far.Close()
	}
	return err == nil
}

// repeated is the body of a request that may be sent a second time, while no more of it was read than is kept.
type repeated struct {
	src   io.Reader // nil: there is no body
	keeps bool      // mostRepeated bytes
	lost  atomic.Bool

	mu   sync.Mutex
	kept []byte
	read int
	err  error // that src ended with
}

// request is r by another scheme, with the body from its beginning.
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

// whole says that the body can be sent once more.
func (b *repeated) whole() bool { return !b.lost.Load() }

// reading reads the body from its beginning. Who was answered early may still read when another begins: what that one takes is kept
// for the other, or the other fails.
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

func (r *reading) Close() error { return nil } // src is the server's
