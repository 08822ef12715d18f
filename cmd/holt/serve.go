package main

import (
	"cmp"
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
	s := server.New(server.Options{Nouns: d.Nouns(), Tokens: d.Tokens(), Hosts: opt.Hosts, Version: version(), Log: log})
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
	sshDoor, err := listenSSH(opt.SSHListen, log)
	if err != nil {
		if tcp != nil {
			err = errors.Join(err, tcp.Close())
		}
		return errors.Join(err, local.Close())
	}
	log.Info("listening", "socket", socket)
	g, broken := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ServeLocal(local) })
	if tcp != nil {
		g.Go(func() error { return s.ServeTCP(tcp) })
	}
	if sshDoor != nil {
		log.Info("listening, every SSH client needs a key or a token", "ssh", sshDoor.Addr().String(), "host_key", d.SSH().Host().Fingerprint)
		g.Go(func() error { return d.SSH().Serve(sshDoor) })
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
	_ = d.SSH().Close() // it has nothing to say
	return g.Wait()
}

// Where SSH clients are listened for unless it is said, and what says nowhere.
const (
	sshDefault = "127.0.0.1:2222"
	sshOff     = "off"
)

// listenSSH opens the port for SSH clients; nil: there is none. That the one nobody has asked for is taken, by another
// daemon of this machine, is no reason not to serve.
func listenSSH(address string, log *slog.Logger) (net.Listener, error) {
	if address == sshOff {
		return nil, nil
	}
	l, err := net.Listen("tcp", cmp.Or(address, sshDefault))
	if err == nil {
		return l, nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if address == "" {
		log.Warn("not listening for SSH clients; choose another address with --ssh-listen", "address", sshDefault, "error", err)
		return nil, nil
	}
	return nil, holt.Errorf(holt.Unavailable, "cannot listen for SSH clients on %s: %w", address, err).WithHint("choose another address with --ssh-listen, or off")
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
