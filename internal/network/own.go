package network

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/netutil"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

const (
	// ownSocket is the daemon's socket for calls of one computer about itself. Each computer has its own, 0600, in its
	// machine's directory, so the socket authenticates the computer.
	ownSocket = "own.sock"

	mostCalls = 8 // of a guest at once
	// mostConns bounds the connections of one computer, in case a guest has taken over its network's process. It is more
	// than mostCalls, so that connections of a killed process do not block the next one.
	mostConns = 2 * mostCalls
	callIdle  = 30 * time.Second
)

// internal forwards calls of http://holt.internal/ and http://s3.holt.internal/ to the present daemon.
func (p *process) internal() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := netstack.InternalName
			if OwnS3(r.In) {
				to = netstack.S3Name
			}
			r.SetURL(&url.URL{Scheme: "http", Host: to})
		},
		Transport: &http.Transport{
			DisableCompression: true, MaxConnsPerHost: mostCalls, IdleConnTimeout: callIdle, MaxResponseHeaderBytes: 1 << 16,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dir.Dial(ctx, ownSocket) },
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { Away(w) },
	}
}

// OwnS3 reports whether a computer's call is of a client of S3.
func OwnS3(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return host == netstack.S3Name
}

// Away answers a call while no daemon runs.
func Away(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	json.NewEncoder(w).Encode(holt.Errorf(holt.Unavailable, "the holt daemon is not running; this computer is not affected").WithHint("try again later"))
}

// answer serves a computer's calls about itself until stop is called.
func answer(d *machine.Dir, h http.Handler) (stop func(), err error) {
	if err := d.Remove(ownSocket); err != nil {
		return nil, err
	}
	f, err := d.Listen(ownSocket)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err == nil {
		err = os.Chmod(d.File(ownSocket), 0o600)
	}
	if err != nil {
		return nil, err
	}
	l = netutil.LimitListener(l, mostConns)
	s := &http.Server{Handler: h, ReadHeaderTimeout: callLimit, IdleTimeout: 2 * callIdle, MaxHeaderBytes: 1 << 16}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			l.Close()
		}
	}()
	return func() { s.Close(); <-done }, nil
}
