package preview

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"holt"
)

const (
	piece           = 32 << 10 // bytes of a buffer
	mostOfPort      = 192      // connections to one port of a computer; more requests wait for connWithin
	mostIdleOfPort  = 32
	mostIdle        = 512
	idleFor         = time.Minute
	mostHeader      = 256 << 10 // bytes of the header of a guest's answer
	most1xx         = 32        // informational answers (1xx)
	answerWithin    = 5 * time.Minute
	continueWithin  = time.Second
	connWithin      = 10 * time.Second
	forwardedPrefix = "X-Forwarded-"
)

// origin is the trusted part of a request's address and client.
type origin struct {
	scheme string // http or https
	host   string // with port, as the client sees it
	client netip.Addr
}

// originOf returns the origin of a request: from the connection, from headers of a trusted proxy, and from the
// configured place of previews.
func (d *Door) originOf(r *http.Request, host string) origin {
	from := origin{scheme: cmp.Or(d.store.cfg.Place.Scheme, "http"), host: host, client: d.opt.Trusted.Client(r)}
	if r.TLS != nil {
		from.scheme = "https"
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		from.host = net.JoinHostPort(host, port)
	}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && d.opt.Trusted.Trusts(at.Addr().Unmap()) {
		if proto := strings.ToLower(r.Header.Get("X-Forwarded-Proto")); proto == "http" || proto == "https" {
			from.scheme = proto
		}
	}
	return from
}

// buffers is a pool of buffers.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[piece]byte); ok {
		return p[:]
	}
	return new([piece]byte)[:]
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[piece]byte)(p)) }

func (d *Door) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		MaxConnsPerHost:        mostOfPort,
		MaxIdleConnsPerHost:    mostIdleOfPort,
		MaxIdleConns:           mostIdle,
		IdleConnTimeout:        idleFor,
		ResponseHeaderTimeout:  answerWithin,
		ExpectContinueTimeout:  continueWithin,
		MaxResponseHeaderBytes: mostHeader,
		DisableCompression:     true, // an app's answer is forwarded unchanged
		ReadBufferSize:         piece,
		WriteBufferSize:        piece,
	}
}

func (d *Door) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      toApp{d},
		Rewrite:        d.rewrite,
		ModifyResponse: d.modify,
		FlushInterval:  -1, // flush at once, for server-sent events
		BufferPool:     &buffers{},
		ErrorLog:       slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, out *http.Request, err error) {
			a := answerOf(out.Context())
			d.failed(a, a.r, a.site, a.visitor, d.unreached(a, err))
		},
	}
}

// rewrite makes the request for the app.
func (d *Door) rewrite(p *httputil.ProxyRequest) {
	a, h := answerOf(p.In.Context()), p.Out.Header
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = string(a.site.computer.ID) + ":" + strconv.Itoa(a.site.port)
	p.Out.URL.RawQuery = withoutLink(p.In.URL.RawQuery) // otherwise unchanged
	p.Out.Host = a.from.host
	withoutOurs(h)
	if p.Out.Trailer != nil {
		withoutOurs(p.Out.Trailer)
		a.body.trailTo = p.Out.Trailer
		if p.Out.ContentLength < 0 { // otherwise the transport may read the body concurrently with the trailer
			p.Out.TransferEncoding = []string{"chunked"}
		}
	}
	if strings.EqualFold(h.Get("Upgrade"), "h2c") { // requests in h2c would bypass this door
		h.Del("Upgrade")
		h.Del("Connection")
		h.Del("Http2-Settings")
	}
	port := "80"
	if a.from.scheme == "https" {
		port = "443"
	}
	if _, given, err := net.SplitHostPort(a.from.host); err == nil {
		port = given
	}
	client := a.from.client.String()
	h.Set("X-Forwarded-For", client)
	h.Set("X-Forwarded-Host", a.from.host)
	h.Set("X-Forwarded-Proto", a.from.scheme)
	h.Set("X-Forwarded-Port", port)
	if a.from.client.Is6() {
		client = "[" + client + "]"
	}
	h.Set("Forwarded", fmt.Sprintf("for=%q;host=%q;proto=%s", client, a.from.host, a.from.scheme))
}

// speaksForUs reports whether an app would trust a header as set by a proxy. Some apps treat underscores as dashes.
func speaksForUs(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return strings.HasPrefix(name, forwardedPrefix) || name == "Forwarded" || name == "X-Real-Ip" || name == tokenHeader
}

// modify makes the answer for the client.
func (d *Door) modify(resp *http.Response) error {
	hostOnly(resp.Header)
	a := answerOf(resp.Request.Context())
	a.visitor.setCookie(resp.Header, a.from)
	if from := a.from; resp.Request.URL.Scheme == "https" && leadsToHTTPS(resp, from.host) { // a redirect of an app with TLS to itself
		resp.Header.Set("Location", from.scheme+resp.Header.Get("Location")[len("https"):])
	}
	resp.Header.Del("Alt-Svc") // it would lead browsers to another port
	return nil
}

// bounded limits the number of 1xx answers of a guest, and how long a request waits for a connection while others use
// all of them.
func (a *answer) bounded(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.queued = time.AfterFunc(connWithin, func() { cancel(errCrowded) })
	said := 0
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.queued.Reset(connWithin) },
		GotConn: func(httptrace.GotConnInfo) { a.queued.Stop() },
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			if said++; said > most1xx {
				return holt.Errorf(holt.Unavailable, "the app sent more than %d informational (1xx) answers", most1xx)
			}
			return nil
		},
	}), cancel
}
