package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/cli"
	"holt/daemon"
	"holt/metric"
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
	log, err := logger(opt.Log, opt.LogFormat, opt.LogLevel)
	if err != nil {
		return err
	}
	over := ownSupervisor()
	registry := new(metric.Registry)
	d, err := daemon.Open(ctx, daemon.Config{
		DataDir: opt.DataDir, ImageDir: opt.ImageDir, Engine: opt.Engine,
		Archive:     daemon.ArchiveConfig{Dir: opt.Archive, CacheBytes: opt.ArchiveCache},
		Network:     []string{"/proc/self/exe", cli.NetworkProcess},
		GuestBinary: guest, TCP: opt.Listen != "", Version: version(), Log: log, Metrics: registry,
		Keep: workspace.Keep{Last: opt.KeepLast, Days: opt.KeepDays}, MomentCache: opt.MomentCache, Renew: opt.Renew, Overcommit: opt.Overcommit,
	})
	if err != nil {
		return err
	}
	return errors.Join(answer(ctx, d, opt, log, registry, over), d.Close())
}

// answer serves the API of an open daemon.
func answer(ctx context.Context, d *daemon.Daemon, opt cli.ServeOptions, log *slog.Logger, registry *metric.Registry, over supervisor) error {
	s := server.New(server.Options{Nouns: d.Nouns(), Tokens: d.Tokens(), Hosts: opt.Hosts, Version: version(), Log: log, Metrics: registry, Ready: d.Ready})
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
	var metrics net.Listener
	if opt.MetricsListen != "" {
		if metrics, err = listenAt(opt.MetricsListen, "--metrics-listen"); err != nil {
			if tcp != nil {
				err = errors.Join(err, tcp.Close())
			}
			return errors.Join(err, local.Close())
		}
		log.Info("listening for metrics", "tcp", metrics.Addr().String())
	}
	log.Info("listening", "socket", socket)
	g, broken := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ServeLocal(local) })
	if metrics != nil {
		g.Go(func() error { return s.ServeMetrics(metrics) })
	}
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		over.watch(watching, log, func(ctx context.Context) error { _, err := d.Health(ctx); return err })
	})
	defer watch.Wait()
	defer unwatch()
	if err := over.tell("READY=1\nSTATUS=computers are taken over; answering"); err != nil {
		log.Warn("the supervisor is not told that the daemon is ready", "error", err)
	}
	if tcp != nil {
		g.Go(func() error { return s.ServeTCP(tcp) })
	}
	select {
	case <-broken.Done():
		log.Info("ending; computers go on", "signal", ctx.Err() != nil)
	case <-d.Done():
		log.Info("ending: down")
	}
	_ = over.tell("STOPPING=1") // it may be the one that has gone
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
	tcp, err := listenAt(opt.Listen, "--listen")
	if err != nil {
		return nil, err
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

// listenAt listens on the TCP address that a flag has named.
func listenAt(address, flag string) (net.Listener, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the rest says where, again
		}
		return nil, holt.Errorf(holt.Unavailable, "cannot listen on %s: %w", address, err).WithHint("choose another port with %s", flag)
	}
	return tcp, nil
}
