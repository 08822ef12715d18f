package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/access"
	"holt/internal/archive"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/loopback"
	"holt/internal/metric"
	"holt/internal/workspace"
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
	place, err := previewPlace(opt)
	if err != nil {
		return err
	}
	opt.Hosts = hostsOf(opt)
	d, err := daemon.Open(ctx, daemon.Config{
		Previews: place, Hosts: opt.Hosts,
		DataDir: opt.DataDir, ImageDir: opt.ImageDir, Engine: opt.Engine,
		Archive: archive.Place{Dir: opt.Archive, CacheBytes: opt.ArchiveCache},
		Network: []string{"/proc/self/exe", cli.NetworkProcess}, Keeper: []string{"/proc/self/exe", cli.KeeperProcess},
		GuestBinary: guest, TCP: opt.Listen != "", Version: version(), Log: log, Metrics: registry,
		Keep: workspace.Retention{Last: opt.KeepLast, Days: opt.KeepDays}, SnapshotCache: opt.SnapshotCache, Renew: opt.Renew, Overcommit: opt.Overcommit,
	})
	if err != nil {
		return err
	}
	return errors.Join(answer(ctx, d, opt, log, registry, over), d.Close())
}

// calls bounds calls of the API: so many a second, and twice as many at once.
func calls(rate float64) *access.Rate {
	return &access.Rate{PerSecond: rate, Burst: max(1, 2*rate)}
}

// answer serves the API of an open daemon.
func answer(ctx context.Context, d *daemon.Daemon, opt cli.ServeOptions, log *slog.Logger, registry *metric.Registry, over supervisor) error {
	failures := &access.Rate{PerSecond: opt.FailureRate / 60, Burst: max(1, opt.FailureRate)} // at all of the doors for HTTP
	trusted, err := proxies(opt)
	if err != nil {
		return err
	}
	s := httpapi.New(httpapi.Options{
		Authorize: d.Authorizer(),
		Nouns:     d.Nouns(), Tokens: d.Tokens(), Hosts: opt.Hosts, Version: version(), Log: log, Metrics: registry, Ready: d.Ready, Audit: d.Audit(),
		Calls:    calls(opt.CallRate),
		Tenants:  calls(10 * opt.CallRate),
		Failures: failures, Trusted: trusted,
	})
	objects := newS3(d, opt, trusted, failures, log)
	d.Own(ownOf(d, s, objects))
	socket := filepath.Join(opt.DataDir, "holt.sock")
	at, err := listeners(opt, log, socket)
	if err != nil {
		return err
	}
	previews, err := listenPreviews(d, opt, at.tcp, s.TCP(), trusted, failures, log)
	if err != nil {
		return errors.Join(err, at.close())
	}
	log.Info("listening", "socket", socket)
	g, broken := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ServeLocal(at.local) })
	if at.metrics != nil {
		g.Go(func() error { return s.ServeMetrics(at.metrics) })
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
	previews.serve(g)
	if at.ssh != nil {
		log.Info("listening, every SSH client needs a key or a token", "ssh", at.ssh.Addr().String(), "host_key", d.SSH().Host().Fingerprint)
		g.Go(func() error { return d.SSH().Serve(at.ssh) })
	}
	if at.s3 != nil {
		log.Info("listening, every client of S3 needs a key", "s3", at.s3.Addr().String(), "tls", previews.tls != nil)
		g.Go(func() error { return objects.Serve(encrypted(at.s3, previews.tls)) })
	}
	select {
	case <-broken.Done():
		log.Info("ending; computers keep running", "signal", ctx.Err() != nil)
	case <-d.Done():
		log.Info("ending: down")
	}
	_ = over.tell("STOPPING=1") // it may be the one that has gone
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	var ends errgroup.Group // of both at once: the API's calls over TCP are the previews' listener's
	ends.Go(func() error { return s.Shutdown(late) })
	ends.Go(func() error { return previews.door.Shutdown(late) })
	ends.Go(func() error { return objects.Shutdown(late) })
	if err := ends.Wait(); err != nil {
		log.Warn("calls in flight are cut off", "error", err)
		_ = errors.Join(s.Close(), previews.door.Close(), objects.Close()) // their listeners are closed already
	}
	_ = d.SSH().Close() // it has nothing to say
	return g.Wait()
}

// hostsOf are the names of the API: those that were given, and the one that it listens at, if that is a name.
func hostsOf(opt cli.ServeOptions) []string {
	host, _, err := net.SplitHostPort(opt.Listen)
	if err != nil || host == "" || net.ParseIP(host) != nil {
		return opt.Hosts
	}
	return append(slices.Clone(opt.Hosts), host)
}

// proxies are those in front whose word on who calls is taken.
func proxies(opt cli.ServeOptions) (trusted access.Proxies, err error) {
	for _, s := range opt.Previews.Proxies {
		one, err := cli.ParseProxy(s)
		if err != nil {
			return nil, err
		}
		trusted = append(trusted, one)
	}
	return trusted, nil
}

// doors are where a daemon listens; nil: not there.
type doors struct{ local, tcp, metrics, ssh, s3 net.Listener }

// listeners opens all of them, before anything is answered.
func listeners(opt cli.ServeOptions, log *slog.Logger, socket string) (at doors, err error) {
	for _, one := range []struct {
		to     *net.Listener
		wanted bool
		open   func() (net.Listener, error)
	}{
		{&at.local, true, func() (net.Listener, error) { return httpapi.ListenLocal(socket) }},
		{&at.tcp, opt.Listen != "", func() (net.Listener, error) { return listenAPI(opt, log) }},
		{&at.metrics, opt.MetricsListen != "", func() (net.Listener, error) { return listenMetrics(opt.MetricsListen, log) }},
		{&at.s3, opt.S3Listen != s3Off, func() (net.Listener, error) { return listenS3(opt.S3Listen, log) }},
		{&at.ssh, opt.SSHListen != sshOff, func() (net.Listener, error) { return listenSSH(opt.SSHListen, log) }},
	} {
		if !one.wanted {
			continue
		}
		if *one.to, err = one.open(); err != nil {
			return at, errors.Join(err, at.close())
		}
	}
	return at, nil
}

func (at doors) close() (err error) {
	for _, l := range []net.Listener{at.local, at.tcp, at.metrics, at.ssh, at.s3} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

func listenMetrics(address string, log *slog.Logger) (net.Listener, error) {
	l, err := listenAt(address, "--metrics-listen", loopback.Listen)
	if err == nil {
		log.Info("listening for metrics", "tcp", l.Addr().String())
	}
	return l, err
}

// Where SSH clients are listened for unless it is said, and what says nowhere.
const (
	sshDefault = "localhost:2222"
	sshOff     = "off"
)

// listenSSH opens the port for SSH clients; nil: there is none. If the default port is taken, by another daemon of this
// machine, the daemon serves without one.
func listenSSH(address string, log *slog.Logger) (net.Listener, error) {
	l, err := listen(cmp.Or(address, sshDefault), loopback.Listen)
	if err == nil {
		return l, nil
	}
	if address == "" {
		log.Warn("not listening for SSH clients; choose another address with --ssh-listen", "address", sshDefault, "error", err)
		return nil, nil
	}
	return nil, holt.Errorf(holt.Unavailable, "cannot listen for SSH clients on %s: %w", address, err).WithHint("choose another address with --ssh-listen, or off")
}

// listenAPI opens the TCP port.
func listenAPI(opt cli.ServeOptions, log *slog.Logger) (net.Listener, error) {
	tcp, err := listenAt(opt.Listen, "--listen", loopback.ListenAll) // it may show previews
	if err != nil {
		return nil, err
	}
	log.Info("listening, every caller needs a token", "tcp", tcp.Addr().String())
	return tcp, nil
}

// listenAt listens on the TCP address that a flag has named.
func listenAt(address, flag string, how func(string) (net.Listener, error)) (net.Listener, error) {
	tcp, err := listen(address, how)
	if err != nil {
		return nil, holt.Errorf(holt.Unavailable, "cannot listen on %s: %w", address, err).WithHint("choose another port with %s", flag)
	}
	return tcp, nil
}

// listen listens on a TCP address. Its error says which of localhost's two addresses is taken, and of others only why:
// the caller says which they are.
func listen(address string, how func(string) (net.Listener, error)) (net.Listener, error) {
	l, err := how(address)
	var op *net.OpError
	switch {
	case !errors.As(err, &op):
		return l, err
	case op.Addr != nil && op.Addr.String() != address:
		return nil, fmt.Errorf("%s: %w", op.Addr, op.Err)
	}
	return nil, op.Err
}
