package computer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// Ports is the listening ports of computers, and connections to them.
type Ports struct {
	*registry
	waker *waker
	conns *conns
}

// Ports returns the ports of all computers.
func (s *Store) Ports() *Ports { return s.ports }

const (
	// mostConns is how many connections to one computer are open at once. The rest of
	// what its agent may do at once is for runs, terminals and files.
	mostConns = 256
	// mostReached is how many of these [Ports.Reach] may take: strangers are behind some,
	// and they must not lock out callers with a token.
	mostReached = mostConns * 3 / 4
	// mostConnsOfAll is how many there are to all computers, of which a tenant's have mostConnsIn at most: of each that
	// is not read the daemon holds something, see package agent.
	mostConnsOfAll = 4096
	mostConnsIn    = mostConnsOfAll / 2
	// connTries is how often a connection is retried because the computer was paused
	// or stopped just then.
	connTries = 3
	// askPorts bounds what a guest is asked for the sake of a hint.
	askPorts = 5 * time.Second
	// mostHinted is how many ports a hint names.
	mostHinted = 8
)

// List returns what listens in a computer, which is woken if necessary. The run or terminal of a
// port is what the guest claims, if it exists.
func (n *Ports) List(ctx context.Context, computer string) ([]holt.Listener, error) {
	_, l, done, err := n.waker.use(ctx, computer, holt.Use{Kind: holt.UseCall, Detail: "ports"})
	if err != nil {
		return nil, err
	}
	defer done()
	var list []holt.Listener
	err = l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) (err error) {
		list, err = c.Ports(ctx)
		return err
	})
	for i := range list {
		one := &list[i]
		if one.Run != "" {
			if _, here := l.runTracker.startedHere(one.Run); !here {
				one.Run = ""
			}
		}
		if one.Terminal != "" {
			var known bool
			if one.TerminalName, known = l.terminals.known(one.Terminal); !known {
				one.Terminal = ""
			}
		}
	}
	return list, err
}

// Connect connects to a port of a computer, on loopback or on any address that a program listens
// on, or to a unix socket. It wakes the computer. The connection outlives ctx and keeps the
// computer awake; it ends with the machine or the daemon, and then its errors say so.
//
// Errors: Unavailable (nothing listens, or the guest does not answer), TooMany, InvalidArgument,
// Timeout (the program does not accept).
func (n *Ports) Connect(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	return n.connect(ctx, computer, to, n.waker.use, mostConns)
}

// Reach is Connect to a running computer whose use the caller marks itself, see [Store.Wake]. It
// wakes no computer, and a pause ends the connection.
//
// Errors: those of Connect, TooMany at a lower count; Unavailable (the computer is not running).
func (n *Ports) Reach(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	return n.connect(ctx, computer, to, n.awake, mostReached)
}

// openMachine returns the running machine of a computer, in use until done is called.
type openMachine func(ctx context.Context, ref string, use holt.Use) (r record, l *live, done func(), err error)

// awake is the openMachine that wakes no computer.
func (s *registry) awake(ctx context.Context, ref string, _ holt.Use) (record, *live, func(), error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return record{}, nil, nil, err
	}
	l := s.machines.live(r.ID)
	if r.State != holt.ComputerRunning || l == nil || !l.running() {
		return record{}, nil, nil, holt.Errorf(holt.Unavailable, "%s is not running: it is %s", r.Name, r.State)
	}
	return r, l, func() {}, nil
}

func (n *Ports) connect(ctx context.Context, computer string, to holt.PortAddress, slot openMachine, most int) (holt.PortConn, error) {
	if err := to.Check(); err != nil {
		return nil, err
	}
	r, err := n.table.find(ctx, computer)
	if err != nil {
		return nil, err
	}
	left, err := n.conns.enter(r, most)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		c := &portConn{s: n.registry, to: to, slot: slot}
		err = c.dial(ctx, string(r.ID))
		if err == nil {
			done := c.done
			c.done = func() { done(); left() }
			return c, nil
		}
		if ctx.Err() != nil || try == connTries || !c.gone() {
			left()
			return nil, err
		}
	}
}

// conns counts the open connections per computer, per tenant and in total. The zero value is ready.
type conns struct {
	mu  sync.Mutex
	set map[holt.ComputerID]int
	in  map[string]int
	all int
}

// enter counts a connection until left is called. It returns TooMany if the computer has most of
// its [mostConns], or if its tenant or all computers have the same fraction of theirs.
func (c *conns) enter(r record, most int) (left func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set[r.ID] >= most {
		return nil, tooManyConns("%d connections to ports of %s are open, which is the maximum", c.set[r.ID], r.Name)
	}
	if c.in[r.Tenant] >= mostConnsIn*most/mostConns {
		return nil, tooManyConns("%d connections to ports of computers of the tenant %s are open, which is the maximum", c.in[r.Tenant], r.Tenant)
	}
	if c.all >= mostConnsOfAll*most/mostConns {
		return nil, tooManyConns("%d connections to ports of computers are open, which is the maximum", c.all)
	}
	if c.set == nil {
		c.set, c.in = map[holt.ComputerID]int{}, map[string]int{}
	}
	c.set[r.ID]++
	c.in[r.Tenant]++
	c.all++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.set[r.ID]--; c.set[r.ID] == 0 {
			delete(c.set, r.ID)
		}
		if c.in[r.Tenant]--; c.in[r.Tenant] == 0 {
			delete(c.in, r.Tenant)
		}
	}, nil
}

func tooManyConns(sentence string, args ...any) error {
	return holt.Errorf(holt.TooMany, sentence, args...).WithHint("close some, or try again later")
}

type duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// portConn is a connection to a port of a computer.
type portConn struct {
	s      *registry
	r      record
	l      *live
	client *agent.Client
	to     holt.PortAddress
	is     string // what it is; "": a connection to there
	slot   openMachine
	conn   duplex
	done   func()
	once   sync.Once
}

// dial opens the machine and makes the connection.
func (c *portConn) dial(ctx context.Context, computer string) (err error) {
	c.r, c.l, c.done, err = c.slot(ctx, computer, holt.Use{Kind: holt.UseConnection, Detail: c.to.String()})
	if err != nil {
		return err
	}
	network, address := "tcp", fmt.Sprintf("localhost:%d", c.to.Port)
	if c.to.Socket != "" {
		network, address = "unix", string(c.to.Socket)
	}
	var said error // by the guest
	err = c.l.do(ctx, c.l.limits.Answer, true, func(ctx context.Context, client *agent.Client) error {
		conn, err := client.DialPort(ctx, network, address)
		if err != nil {
			said = err
			return err
		}
		c.client, c.conn = client, conn.(duplex)
		return nil
	})
	if err == nil {
		return nil
	}
	if holt.CodeOf(err) == holt.NotFound && err == said {
		err = c.notAnswering(ctx)
	}
	c.done()
	return err
}

// notAnswering is the error if nothing listens; its hint names the ports in use.
func (c *portConn) notAnswering(ctx context.Context) error {
	if c.to.Socket != "" {
		return holt.Errorf(holt.Unavailable, "nothing listens at %s of %s", clip(string(c.to.Socket)), c.r.Name).
			WithHint("start the program that creates the socket")
	}
	e := holt.Errorf(holt.Unavailable, "nothing listens at port %d of %s", c.to.Port, c.r.Name)
	ctx, cancel := context.WithTimeout(ctx, askPorts)
	defer cancel()
	var names []string
	client, err := c.l.agent(ctx, askPorts)
	if err == nil {
		var list []holt.Listener
		if list, err = client.Ports(ctx); err == nil {
			names = hinted(list)
		}
	}
	switch {
	case err != nil:
		return e.WithHint("holt computer ports %s lists the ports in use", c.r.Name)
	case len(names) == 0:
		return e.WithHint("no program listens on a TCP port; it may still be starting")
	}
	return e.WithHint("programs listen on: %s", strings.Join(names, ", "))
}

// hinted names the TCP ports of a list.
func hinted(list []holt.Listener) (names []string) {
	slices.SortStableFunc(list, func(a, b holt.Listener) int { return a.Port - b.Port })
	last := 0
	for _, one := range list {
		if one.Protocol != "tcp" || one.Port == last {
			continue
		}
		if len(names) == mostHinted {
			return append(names, "…")
		}
		name := fmt.Sprint(one.Port)
		if one.Process != "" {
			name += " (" + one.Process + ")"
		}
		names, last = append(names, name), one.Port
	}
	return names
}

func (c *portConn) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	if err != nil && err != io.EOF {
		err = c.why(err)
	}
	return n, err
}

func (c *portConn) Write(p []byte) (int, error) {
	n, err := c.conn.Write(p)
	if err != nil {
		err = c.why(err)
	}
	return n, err
}

// CloseWrite ends the outgoing half.
func (c *portConn) CloseWrite() error {
	if err := c.conn.CloseWrite(); err != nil {
		return c.why(err)
	}
	return nil
}

func (c *portConn) Close() (err error) {
	c.once.Do(func() {
		err = c.conn.Close()
		c.done()
	})
	return err
}

// gone reports whether the machine is not the computer's any more.
func (c *portConn) gone() bool {
	return c.l != nil && (!c.l.running() || c.s.machines.live(c.r.ID) != c.l)
}

// why explains what ended the connection.
func (c *portConn) why(err error) error {
	what := fmt.Sprintf("the connection to %s of %s", clip(c.to.String()), c.r.Name)
	if c.is != "" {
		what = fmt.Sprintf("the %s %s", c.is, c.r.Name)
	}
	if !broken(c.client) {
		return holt.Errorf(holt.Unavailable, "%s was closed inside the computer", what)
	}
	if c.s.shutdown.ctx.Err() != nil {
		return holt.Errorf(holt.Unavailable, "%s ended: the daemon is ending", what).WithHint("connect again when it is back")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.s.shutdown.ctx), askPorts)
	defer cancel()
	r, lost := c.s.table.find(ctx, string(c.r.ID))
	switch {
	case holt.CodeOf(lost) == holt.NotFound || r.State == holt.ComputerDeleting:
		return holt.Errorf(holt.NotFound, "%s ended: the computer was deleted", what)
	case lost == nil && (r.State == holt.ComputerPausing || r.State == holt.ComputerPaused):
		return holt.Errorf(holt.Unavailable, "%s ended: the computer was paused", what).WithHint("a new connection wakes it")
	case lost == nil && (c.gone() || r.State != holt.ComputerRunning):
		return holt.Errorf(holt.Unavailable, "%s ended: its machine has ended", what).WithHint("a new connection starts it again")
	}
	return holt.Errorf(holt.Unavailable, "%s ended: the channel to the guest broke: %w", what, err).WithHint("connect again")
}
