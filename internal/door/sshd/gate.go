package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
	"holt/internal/store/db"
)

// Computers are the computers, as the gate calls them. ref is a name or id, and from describes the caller, for
// why-awake. Open, Dial and Listen wake the computer. Their results outlive ctx, and are uses of the computer until they
// are closed.
type Computers interface {
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// Open runs a program for as long as the session is open.
	Open(ctx context.Context, ref string, spec holt.SessionSpec, from string) (holt.Session, error)
	Dial(ctx context.Context, ref string, to holt.SessionAddress, from string) (holt.PortConn, error)
	Listen(ctx context.Context, ref string, at holt.SessionAddress, from string) (holt.SessionListener, error)
}

// Event is an action at the gate, or its refusal.
type Event struct {
	Connection string // id of the SSH connection, in the log as "ssh"
	What       string // connect, refuse (of the key or token), shell, exec, sftp, forward (to the computer), listen (in it), agent
	From       string // the client's address; api: by Connect
	Who        string // id of the key or token, or person
	Computer   string // as the client gave it
	User       string // Linux user
	Detail     string // the command, or the address
	Started    time.Time
	Err        error            // nil: success
	End        *holt.SessionEnd // of shell, exec and sftp that have ended
}

// Options configure a [Gate].
type Options struct {
	DB        *db.DB // with [Schema]
	DataDir   string // where the host key is
	Tokens    *access.Tokens
	Computers Computers
	Log       *slog.Logger // nil: slog.Default()
	// Record gets each event at its end, with the caller in ctx, in addition to the log; nil: only the log.
	Record func(ctx context.Context, e Event)
}

// Gate is the SSH server.
type Gate struct {
	opt     Options
	log     *slog.Logger
	keys    *Keys
	hostKey ssh.Signer
	now     func() time.Time

	ctx             context.Context // ended by Close
	end             context.CancelFunc
	work            sync.WaitGroup
	failures        failures
	pending         pendings
	conns, channels access.Counts

	mu      sync.Mutex
	address string // of the listener
	open    map[net.Conn]struct{}
	closed  bool
}

// Open returns a gate. It makes the host key if there is none.
func Open(opt Options) (*Gate, error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	key, err := openHostKey(opt.DataDir)
	if err != nil {
		return nil, err
	}
	g := &Gate{opt: opt, log: opt.Log, keys: NewKeys(opt.DB), hostKey: key, now: time.Now, open: map[net.Conn]struct{}{},
		conns: access.Counts{What: "SSH connections"}, channels: access.Counts{What: "SSH channels"}}
	g.failures.now = time.Now
	g.ctx, g.end = context.WithCancel(context.Background())
	return g, nil
}

// Keys returns the store of public keys.
func (g *Gate) Keys() *Keys { return g.keys }

// Serve serves the clients of l. It returns nil after Close.
func (g *Gate) Serve(l net.Listener) error {
	g.mu.Lock()
	closed := g.closed
	g.address = l.Addr().String()
	g.mu.Unlock()
	if closed {
		return l.Close()
	}
	defer context.AfterFunc(g.ctx, func() { l.Close() })()
	for {
		nc, err := l.Accept()
		switch {
		case g.ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept SSH clients: %w", err)
		case err != nil: // no file descriptors, or a client that disconnected
			g.log.Warn("accept an SSH client", "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-g.ctx.Done():
			}
			continue
		}
		at := place(nc.RemoteAddr().String())
		if g.failures.tooMany(at) || !g.track(nc) {
			nc.Close()
			continue
		}
		left, ok := g.pending.enter(at, nc)
		if !ok {
			g.untrack(nc)
			nc.Close()
			continue
		}
		go func() {
			defer g.untrack(nc)
			in := &connSlot{}
			g.answer(nc, nc.RemoteAddr().String(), g.authConfig(g.ctx, in), in, left, nil)
		}()
	}
}

// Connect returns a connection to an SSH server for a computer and the actor of ctx, which the API has authenticated.
// The client's user name is the Linux user.
//
// Errors: NotFound, Unauthenticated (the token has ended), TooMany, Unavailable (the gate is closed).
func (g *Gate) Connect(ctx context.Context, ref string) (holt.PortConn, error) {
	c, err := g.opt.Computers.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	who := &caller{who: "person", how: "api", agent: true}
	actor, ok := holt.ActorOf(ctx)
	if ok {
		who = &caller{who: actor.Name, how: "api"}
		if actor.Token != "" {
			token, err := g.token(ctx, actor.Token)
			if err != nil {
				return nil, err
			}
			who = g.ofToken(token, "api")
		}
	}
	if ok || actor.Tenant != "" { // a call can be for another tenant than the token's
		who.actor = &actor
	}
	leave, err := g.conns.Enter(who.shares(mostConns, mostConnsOf)...)
	if err != nil {
		return nil, err
	}
	near, far, err := duplexPipe()
	if err != nil {
		leave()
		return nil, err
	}
	if !g.track(far) {
		leave()
		near.Close()
		far.Close()
		return nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("try again when it is back")
	}
	config := g.config()
	config.NoClientAuth = true
	config.NoClientAuthCallback = func(ssh.ConnMetadata) (*ssh.Permissions, error) {
		return &ssh.Permissions{ExtraData: map[any]any{callerKey{}: who}}, nil
	}
	go func() {
		defer g.untrack(far)
		g.answer(far, "api", config, &connSlot{leave: leave}, func() bool { return false }, &c)
	}()
	return near, nil
}

// track adds a connection until untrack; false: the gate is closed.
func (g *Gate) track(nc net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.open[nc] = struct{}{}
	g.work.Add(1)
	return true
}

func (g *Gate) untrack(nc net.Conn) {
	nc.Close()
	g.mu.Lock()
	delete(g.open, nc)
	g.mu.Unlock()
	g.work.Done()
}

// closeGrace is how long clients have to read that the gate closes.
const closeGrace = 2 * time.Second

// Close ends all connections and waits for them.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.end()
	cut := time.AfterFunc(closeGrace, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for nc := range g.open {
			nc.Close()
		}
	})
	defer cut.Stop()
	g.work.Wait()
	return nil
}

// answer authenticates a client and serves it, if it has a slot by then. It calls left after the authentication, which
// reports whether the connection was closed to make room. fixed is the computer; nil: the one in the user name.
func (g *Gate) answer(nc net.Conn, from string, config *ssh.ServerConfig, in *connSlot, left func() (gone bool), fixed *holt.Computer) {
	defer left()
	defer func() {
		if in.leave != nil {
			in.leave()
		}
	}()
	nc.SetDeadline(time.Now().Add(handshakeTime))
	stop := context.AfterFunc(g.ctx, func() { nc.Close() })
	first := &versionConn{Conn: nc}
	sc, chans, reqs, err := ssh.NewServerConn(first, config)
	if err != nil {
		stop()
		if !left() && fixed == nil && first.speaksSSH() { // not closed to make room
			g.failures.failed(place(from))
		}
		var auth *ssh.ServerAuthError
		if errors.As(err, &auth) {
			g.record(g.ctx, Event{What: "refuse", From: from, Err: err, Started: g.now()})
		}
		g.log.Debug("SSH handshake", "from", from, "err", err)
		return
	}
	stop()
	left()
	nc.SetDeadline(time.Time{})
	who := sc.Permissions.ExtraData[callerKey{}].(*caller)
	c := newConn(g, sc, who, from)
	if fixed != nil {
		c.computer, c.user, err = string(fixed.ID), sc.User(), nil
		if c.user, err = parseUser(c.user); err != nil {
			sc.Close()
			return
		}
	} else {
		at, _ := parseName(sc.User()) // admit has checked it
		c.computer, c.user = at.computer, at.user
	}
	if who.key != nil {
		g.keys.touch(g.ctx, *who.key)
	}
	if in.full != nil {
		go ssh.DiscardRequests(reqs) // otherwise the mux would block, even after Close
		go func() {
			for nc := range chans {
				nc.Reject(ssh.ResourceShortage, plainError(in.full))
			}
		}()
		c.refuse(in.full)
		return
	}
	c.serve(chans, reqs)
}

// record logs an event and calls Options.Record.
func (g *Gate) record(ctx context.Context, e Event) {
	attrs := []any{"ssh", e.Connection, "from", e.From, "who", e.Who, "computer", e.Computer, "user", e.User, "ms", g.now().Sub(e.Started).Milliseconds()}
	switch {
	case e.End != nil:
		attrs = append(attrs, "exit", e.End.ExitCode)
	case e.Err != nil:
		attrs = append(attrs, "err", e.Err)
	}
	if e.What == "forward" || e.What == "listen" { // commands are not logged: they can have secrets
		attrs = append(attrs, "address", holt.Clip(e.Detail, 200))
	}
	g.log.Info("ssh "+e.What, attrs...)
	if g.opt.Record != nil {
		g.opt.Record(ctx, e)
	}
}
