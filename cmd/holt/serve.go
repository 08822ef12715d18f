package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/access"
	"holt/cli"
	"holt/daemon"
	"holt/server"
	"holt/workspace"
)

// farewell bounds how long the daemon waits for calls in flight at its end.
const farewell = 10 * time.Second

// serve runs a daemon until ctx ends or someone says down.
func serve(ctx context.Context, opt cli.ServeOptions) error {
	guest, err := guestBinary()
	if err != nil {
		return err
	}
	log, err := logger(opt.Log)
	if err != nil {
		return err
	}
	d, err := daemon.Open(ctx, daemon.Config{
		DataDir: opt.DataDir, ImageDir: opt.ImageDir, Engine: opt.Engine,
		Archive:     daemon.ArchiveConfig{Dir: opt.Archive, CacheBytes: opt.ArchiveCache},
		Network:     []string{"/proc/self/exe", cli.NetworkProcess},
		GuestBinary: guest, TCP: opt.Listen != "", Version: version(), Log: log,
		Keep: workspace.Keep{Last: opt.KeepLast, Days: opt.KeepDays}, MomentCache: opt.MomentCache, Renew: opt.Renew, Overcommit: opt.Overcommit,
	})
	if err != nil {
		return err
	}
	return errors.Join(answer(ctx, d, opt, log), d.Close())
}

// answer serves the API of an open daemon.
func answer(ctx context.Context, d *daemon.Daemon, opt cli.ServeOptions, log *slog.Logger) error {
	s := server.New(server.Options{
		Nouns: d.Nouns(), Tokens: d.Tokens(), Hosts: opt.Hosts, Version: version(), Log: log, Audit: d.Audit(),
		Calls:    &access.Rate{PerSecond: opt.CallRate, Burst: max(1, 2*opt.CallRate)},
		Failures: &access.Rate{PerSecond: opt.FailureRate / 60, Burst: max(1, opt.FailureRate)},
	})
	d.Own(s.Own)
	socket := filepath.Join(opt.DataDir, "holt.sock")
	local, err := server.ListenLocal(socket)
	if err != nil {
		return err
	}
	var tcp net.Listener // both are there before anything is answered
	if opt.Listen != "" {
		if tcp, err = listen(d, opt, log); err != nil {
			return errors.Join(err, local.Close())
		}
	}
	log.Info("listening", "socket", socket)
	g, broken := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ServeLocal(local) })
	if tcp != nil {
		g.Go(func() error { return s.ServeTCP(tcp) })
	}
	select {
	case <-broken.Done():
		log.Info("ending; computers go on", "signal", ctx.Err() != nil)
	case <-d.Done():
		log.Info("ending: down")
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := s.Shutdown(late); err != nil {
		log.Warn("calls in flight are cut off", "error", err)
		_ = s.Close() // its listeners are closed already
	}
	return g.Wait()
}

// listen opens the TCP port and puts the first token where its owner finds it.
func listen(d *daemon.Daemon, opt cli.ServeOptions, log *slog.Logger) (net.Listener, error) {
	tcp, err := net.Listen("tcp", opt.Listen)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the rest says where, again
		}
		return nil, holt.Errorf(holt.Unavailable, "cannot listen on %s: %w", opt.Listen, err).WithHint("choose another port with --listen")
	}
	if secret := d.FirstToken(); secret != "" {
		path := filepath.Join(opt.DataDir, "token")
		if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("write the first token: %w", err), tcp.Close())
		}
		log.Info("made the first token", "file", path)
	}
	log.Info("listening, every caller needs a token", "tcp", tcp.Addr().String())
	return tcp, nil
}
