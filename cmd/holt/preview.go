package main

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/access"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/door/preview"
	"holt/internal/loopback"
)

const (
	previewsOff     = "off"            // says that there are none
	previewsAt      = "localhost:4647" // unless it is taken
	previewPortFile = "preview.port"   // in the data directory: the port that was there instead, so that links stay valid
)

func previewPlace(opt cli.ServeOptions) (preview.Place, error) {
	if opt.Previews.Listen == previewsOff {
		return preview.Place{Off: true}, nil
	}
	if opt.Previews.Domain == "" {
		return preview.Place{}, nil
	}
	return preview.ParsePlace(opt.Previews.Domain)
}

// previews is the door of previews, with the listeners that it answers: its own, and the API's.
type previews struct {
	door *preview.Door
	tls  *tls.Config
	api  http.Handler
	own  net.Listener // nil: none
	tcp  net.Listener // likewise
}

// listenPreviews opens the listener that is for previews alone, if there is to be one. tcp is the API's, which shows previews, too.
func listenPreviews(d *daemon.Daemon, opt cli.ServeOptions, tcp net.Listener, api http.Handler, trusted access.Proxies, failures *access.Rate, log *slog.Logger) (p previews, err error) {
	p = previews{door: preview.NewDoor(preview.Options{Store: d.Previews(), Trusted: trusted, Failures: failures, Log: log}), api: api, tcp: tcp}
	if p.tls, err = preview.TLS(preview.TLSOptions{
		Cert: opt.Previews.Cert, Key: opt.Previews.Key,
		ACME: opt.Previews.ACME, CA: opt.Previews.ACMECA, Root: opt.Previews.ACMERoot, Dir: filepath.Join(opt.DataDir, "certificates"),
		Store: d.Previews(), Log: log,
	}); err != nil {
		return p, err
	}
	switch at := opt.Previews.Listen; {
	case at == previewsOff:
	case at != "":
		p.own, err = listen(at, loopback.ListenAll)
	case tcp == nil:
		p.own, err = listenSomewhere(filepath.Join(opt.DataDir, previewPortFile))
	}
	if err != nil {
		return p, holt.Errorf(holt.Unavailable, "cannot listen for previews: %w", err).WithHint("choose another address with --preview-listen, or off")
	}
	for _, l := range []net.Listener{p.own, tcp} {
		if l != nil {
			d.Previews().ListensAt(l.Addr(), p.tls != nil)
			if p.tls == nil && loopback.All(l) {
				d.Previews().ListensAtLoopback(l.Addr())
			}
		}
	}
	if p.own != nil {
		log.Info("listening for previews", "tcp", p.own.Addr().String(), "tls", p.tls != nil)
	}
	return p, nil
}

// listenSomewhere listens on a port of the loopback: the usual one, else the one that it was before, else any.
func listenSomewhere(file string) (net.Listener, error) {
	before, _ := os.ReadFile(file) // none
	for _, at := range []string{net.JoinHostPort(loopback.Name, strings.TrimSpace(string(before))), previewsAt} {
		if l, err := listen(at, loopback.ListenAll); err == nil && !strings.HasSuffix(at, ":") {
			return l, nil
		} else if err == nil {
			l.Close()
		}
	}
	l, err := listen(loopback.Name+":0", loopback.ListenAll)
	if err == nil {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		err = os.WriteFile(file, []byte(port+"\n"), 0o600)
	}
	return l, err
}

func (p previews) serve(g *errgroup.Group) {
	if p.own != nil {
		g.Go(func() error { return p.door.Serve(p.own, preview.Serving{TLS: p.tls}) })
	}
	if p.tcp != nil {
		g.Go(func() error { return p.door.Serve(p.tcp, preview.Serving{API: p.api, TLS: p.tls}) })
	}
}
