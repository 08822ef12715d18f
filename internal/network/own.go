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
)

const (
	// ownSocket is where the daemon answers a computer that speaks of itself: who comes this way is this
	// computer, whatever it says. It is in its machine's directory, 0600, and there is one a computer.
	ownSocket = "own.sock"

	mostCalls = 8 // of a guest at once
	// mostConns are answered at once, whoever opens them: a guest may have taken its network over, and have as many files
	// open as that can. What one that was killed has left does not keep the next from asking.
	mostConns = 2 * mostCalls
	callIdle  = 30 * time.Second
)

// internal answers at http://holt.internal/ by the daemon, whichever that is now.
func (p *process) internal() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "holt.internal"}) },
		Transport: &http.Transport{
			DisableCompression: true, MaxConnsPerHost: mostCalls, IdleConnTimeout: callIdle, MaxResponseHeaderBytes: 1 << 16,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dir.Dial(ctx, ownSocket) },
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { Away(w) },
	}
}

// Away is the answer of no daemon.
func Away(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	json.NewEncoder(w).Encode(holt.Errorf(holt.Unavailable, "holt is away; this computer goes on without").WithHint("try again in a while"))
}

// answer has a daemon's handler answer the computer until the returned function is called.
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
