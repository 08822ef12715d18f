package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
	"holt/internal/loopback"
)

const (
	// mostForwarded is how many connections one command has open; more wait to be taken.
	// A computer takes as many, see docs/design/ports.md.
	mostForwarded = 200
	// sayAgain is how long the same trouble is not told once more.
	sayAgain = 10 * time.Second
)

func (a *app) computerForward() *cobra.Command {
	f := &forward{a: a}
	cmd := &cobra.Command{
		Use: "forward NAME PORT[:LOCAL]…", Short: "Forward local ports to ports of a computer",
		Long: `Listens on this machine and forwards each connection to a port of a computer, until Ctrl-C. LOCAL is
the local port (default: the same number; 0: any free port, which is printed). PORT can be a unix socket
in the computer (an absolute path), and LOCAL a socket to create here. It works whatever the computer's
network policy is.

A connection wakes a computer that is paused or stopped, and keeps it awake. A pause of the computer or a restart
of the daemon closes open connections; this command keeps listening. It listens at 127.0.0.1 and ::1 (localhost),
so only programs on this machine can connect. If the port is in use at one of the two addresses, the command names
that address and ends. With --address it listens only at that address.`,
		Example: `  holt computer forward einstein 3000
  holt computer forward einstein 3000:8080 5432
  holt computer forward einstein 3000:0 --json
  holt computer forward einstein /run/docker.sock:/tmp/einstein.sock   then: DOCKER_HOST=unix:///tmp/einstein.sock docker ps`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) >= 2 {
				return nil
			}
			return holt.Errorf(holt.InvalidArgument, "%s needs a computer and at least one port", cmd.Name()).WithHint("usage: %s", cmd.UseLine())
		},
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args[1:] {
				p, err := parseForward(arg)
				if err != nil {
					return err
				}
				f.ports = append(f.ports, p)
			}
			return f.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&f.address, "address", loopback.Name, "IP address to listen at; localhost: 127.0.0.1 and ::1; 0.0.0.0 and :: allow connections from other machines")
	a.jsonFlag(cmd)
	return cmd
}

// forwarded is one port of a computer and where it is reached here.
type forwarded struct {
	to     holt.PortAddress
	port   int    // here; 0: any, or a socket
	socket string // here
	at     net.Listener
}

// parseForward reads PORT[:LOCAL].
func parseForward(arg string) (p forwarded, err error) {
	to, local, given := arg, "", false
	if i := strings.LastIndexByte(arg, ':'); i >= 0 {
		to, local, given = arg[:i], arg[i+1:], true
	}
	if p.to, err = holt.ParsePortAddress(to); err != nil {
		return p, err
	}
	switch {
	case !given && p.to.Socket != "":
		return p, holt.Errorf(holt.InvalidArgument, "no local port for %s", to).WithHint("use %s:PORT or %s:SOCKET", to, to)
	case !given:
		p.port = p.to.Port
		return p, nil
	}
	if local == "0" { // the system chooses
		return p, nil
	}
	here, err := holt.ParsePortAddress(local)
	if err != nil {
		return p, holt.Errorf(holt.InvalidArgument, "%q in %s is not a local port", local, arg).
			WithHint("use a port from 1 to 65535, 0 for any free port, or the absolute path of a socket; leave it out for the same number")
	}
	p.port, p.socket = here.Port, string(here.Socket)
	return p, nil
}

// forward carries connections to ports of one computer.
type forward struct {
	a        *app
	c        *client.Client
	computer holt.Computer
	address  string
	ports    []forwarded
	room     chan struct{} // a token for each connection
	work     sync.WaitGroup

	mu   sync.Mutex
	said map[string]time.Time // what was told, and when
}

func (f *forward) run(ctx context.Context, name string) (err error) {
	if f.address != loopback.Name && net.ParseIP(f.address) == nil {
		return holt.Errorf(holt.InvalidArgument, "--address %q is not an IP address", f.address).WithHint("use localhost (127.0.0.1 and ::1) for this machine only, or 0.0.0.0 or :: to allow connections from other machines")
	}
	if f.c, err = f.a.connect(); err != nil {
		return err
	}
	if f.computer, err = f.c.Computers.Get(ctx, name); err != nil {
		return err
	}
	f.room, f.said = make(chan struct{}, mostForwarded), map[string]time.Time{}
	defer f.work.Wait()
	defer func() {
		for _, p := range f.ports {
			if p.at != nil {
				p.at.Close()
			}
		}
	}()
	for i := range f.ports {
		if f.ports[i].at, err = f.listen(f.ports[i]); err != nil {
			return err
		}
	}
	if err := f.announce(); err != nil {
		return err
	}
	for _, p := range f.ports {
		f.work.Go(func() { f.accept(ctx, p) })
	}
	<-ctx.Done()
	return nil // Ctrl-C is how one ends it
}

// listen listens for one port.
func (f *forward) listen(p forwarded) (net.Listener, error) {
	if p.socket != "" {
		defer syscall.Umask(syscall.Umask(0o077)) // for its owner only, as an SSH agent's
		l, err := net.Listen("unix", p.socket)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return nil, holt.Errorf(holt.Conflict, "%s already exists", p.socket).WithHint("use another path, or remove the file if nothing listens there")
		case err != nil:
			return nil, holt.Errorf(holt.InvalidArgument, "cannot listen at %s: %w", p.socket, cause(err)).
				WithHint("the directory must exist, and the path may have at most 107 bytes")
		}
		return l, nil
	}
	l, err := loopback.Listen(net.JoinHostPort(f.address, strconv.Itoa(p.port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, holt.Errorf(holt.Conflict, "port %d of %s is already in use on this machine", p.port, f.takenAt(err)).WithHint("use another port, such as %s:%d", p.to, free(p.port))
	case errors.Is(err, os.ErrPermission):
		return nil, holt.Errorf(holt.Forbidden, "no permission to listen on port %d", p.port).WithHint("use a port from 1024 on, such as %s:%d", p.to, free(p.port))
	case err != nil:
		return nil, holt.Errorf(holt.InvalidArgument, "cannot listen at port %d of %s: %w", p.port, f.address, cause(err)).
			WithHint("--address must be an address of this machine")
	}
	return l, nil
}

// takenAt is which of the addresses to listen at the system refused.
func (f *forward) takenAt(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		if at, ok := op.Addr.(*net.TCPAddr); ok {
			return at.IP.String()
		}
	}
	return f.address
}

// cause is what the system says of a call of package net.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// free proposes another port than one.
func free(port int) int {
	if port < 1024 {
		return port + 8000
	}
	return port%50000 + 10000
}

// announce says where the ports are reached.
func (f *forward) announce() error {
	if ip := net.ParseIP(f.address); f.address != loopback.Name && !ip.IsLoopback() {
		f.a.say("holt: warning: other machines that reach %s can use these ports", f.address)
	}
	if f.a.wantsJSON() {
		type one struct {
			Port   int           `json:"port,omitempty"`
			Socket holt.OSString `json:"socket,omitempty"`
			Local  string        `json:"local"`
			All    []string      `json:"all"` // local among them
		}
		out := struct {
			Computer string `json:"computer"`
			Forwards []one  `json:"forwards"`
		}{Computer: f.computer.Name}
		for _, p := range f.ports {
			out.Forwards = append(out.Forwards, one{p.to.Port, p.to.Socket, p.at.Addr().String(), loopback.Addresses(p.at)})
		}
		return printJSON(f.a.Out, out)
	}
	for _, p := range f.ports {
		if _, err := fmt.Fprintf(f.a.Out, "%s → %s:%s\n", strings.Join(loopback.Addresses(p.at), ", "), f.computer.Name, shown(p.to.String())); err != nil {
			return err
		}
	}
	f.a.say("stop with Ctrl-C")
	return nil
}

// accept takes connections until the listener is closed.
func (f *forward) accept(ctx context.Context, p forwarded) {
	for {
		conn, err := p.at.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // as too many open files: some will end
			f.tell(holt.Errorf(holt.Unavailable, "accept a connection: %w", cause(err)).WithHint("the command keeps listening"))
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case f.room <- struct{}{}:
		default:
			f.tell(holt.Errorf(holt.TooMany, "%d connections are open", mostForwarded).WithHint("new connections wait until others end"))
			select {
			case f.room <- struct{}{}:
			case <-ctx.Done():
				conn.Close()
				return
			}
		}
		f.work.Go(func() {
			defer func() { <-f.room }()
			if err := f.carry(ctx, conn.(localConn), p.to); err != nil && ctx.Err() == nil {
				f.tell(err)
			}
		})
	}
}

// localConn is a connection of this machine.
type localConn interface {
	net.Conn
	CloseWrite() error
}

// carry passes bytes between a connection here and a port, and returns why that broke. The
// connection here ends as the one there does: one that breaks is reset.
func (f *forward) carry(ctx context.Context, near localConn, to holt.PortAddress) error {
	defer near.Close()
	far, err := f.c.Ports.Connect(ctx, string(f.computer.ID), to)
	if err != nil {
		reset(near)
		return err
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { reset(near); far.Close() })()
	sent := make(chan struct{})
	var own atomic.Bool // its program here broke it off
	go func() {
		defer close(sent)
		switch read, write := pass(far, near); {
		case read != nil:
			own.Store(true)
			far.Close()
		case write == nil: // else who reads from it learns why
			far.CloseWrite()
		}
	}()
	broke, left := pass(near, far)
	quiet := broke == nil || own.Load()
	switch {
	case broke == nil && left == nil:
		near.CloseWrite()
		<-sent
	case broke != nil:
		reset(near)
	}
	far.Close()
	near.Close()
	<-sent
	if quiet {
		return nil
	}
	e := holt.AsError(broke)
	return e.WithHint("this command keeps listening; %s", cmp.Or(e.Hint, "connect again"))
}

// reset closes a connection so that its program is told that it broke.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// tell says what is wrong, once.
func (f *forward) tell(err error) {
	e := holt.AsError(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.said[e.Message]) < sayAgain {
		return
	}
	if len(f.said) > 100 {
		clear(f.said)
	}
	f.said[e.Message] = now
	f.a.complain(err)
}
