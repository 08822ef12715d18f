package computer

import (
	"context"
	"fmt"
	"io"
	"sync"

	"holt"
	"holt/internal/guest/agent"
)

// Sessions is the SSH sessions in computers. A session ends with its connection, and so with the
// daemon, and has no record. Its changes to the workspace are attributed to a terminal, and undone
// as part of its terminal session.
type Sessions struct {
	*registry
	waker *waker
	conns *conns
}

func (s *Store) Sessions() *Sessions { return s.sessions }

// sessionName is the terminal that changes of sessions are attributed to.
const sessionName = "ssh"

// mostVisits is how many sessions of a machine are remembered: processes that one has left may
// still change files.
const mostVisits = 1024

type visit struct {
	id   holt.TerminalID
	name string
}

func visited(all []visit, id holt.TerminalID) (name string, ok bool) {
	for i := len(all) - 1; i >= 0; i-- { // most often one of the last
		if all[i].id == id {
			return all[i].name, true
		}
	}
	return "", false
}

// visit remembers a session.
func (s *terminalSet) visit(id holt.TerminalID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.visits) >= mostVisits {
		s.visits = append(s.visits[:0], s.visits[mostVisits/2:]...)
	}
	s.visits = append(s.visits, visit{id, name})
}

// link keeps a computer in use for a session, a connection or a listener, and ends with its
// machine.
type link struct {
	portConn
	use  holt.Use
	wake openMachine
}

// reach wakes a computer and calls act, whose result outlives ctx. If the computer is paused
// meanwhile it is woken again.
func (n *Sessions) reach(ctx context.Context, computer string, use holt.Use, what string, act func(context.Context, *link) error) (*link, error) {
	for try := 1; ; try++ {
		l := &link{portConn: portConn{s: n.registry, is: what}, use: use, wake: n.waker.use}
		err := l.begin(ctx, computer, act)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil || try == connTries || !l.gone() {
			return nil, err
		}
	}
}

func (l *link) begin(ctx context.Context, computer string, act func(context.Context, *link) error) (err error) {
	if l.r, l.l, l.done, err = l.wake(ctx, computer, l.use); err != nil {
		return err
	}
	err = l.l.do(ctx, l.l.limits.Answer, true, func(ctx context.Context, client *agent.Client) error {
		l.client = client
		return act(ctx, l)
	})
	if err != nil {
		l.done()
	}
	return err
}

// Open runs a program in a computer for as long as the session is open. It wakes the computer. from
// describes the client. The session outlives ctx.
//
// Errors: NotFound (no such computer, user or directory), InvalidArgument, TooMany, Unavailable,
// Timeout.
func (n *Sessions) Open(ctx context.Context, computer string, spec holt.SessionSpec, from string) (holt.Session, error) {
	if t := spec.Terminal; t != nil {
		t.Size.Rows, t.Size.Cols = min(t.Size.Rows, holt.MostTerminalSize), min(t.Size.Cols, holt.MostTerminalSize)
	}
	check := holt.RunSpec{Command: spec.Command, User: spec.User, Env: spec.Env}
	if check.Command == "" {
		check.Command = "a login shell"
	}
	if err := checkRun(check); err != nil {
		return nil, err
	}
	id := holt.NewTerminalID()
	var far *agent.Session
	l, err := n.reach(ctx, computer, holt.Use{Kind: holt.UseSSH, ID: string(id), Detail: from}, "session in", func(ctx context.Context, l *link) (err error) {
		l.l.terminals.visit(id, sessionName)
		far, err = l.client.OpenSession(ctx, id, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &visitor{Session: far, link: l, left: l.l.terminals.work.attach(id)}, nil
}

// visitor is a session in a machine.
type visitor struct {
	*agent.Session
	link *link
	left func()
	once sync.Once
}

func (s *visitor) Output(stdout, stderr io.Writer) (holt.SessionEnd, error) {
	out := &taker{w: stdout}
	end, err := s.Session.Output(out, &taker{w: stderr, also: out})
	if err != nil && out.failed == nil {
		err = s.link.why(err)
	}
	return end, err
}

// taker tells an error of the output's writer from one of the guest.
type taker struct {
	w      io.Writer
	also   *taker // what is told of it, too
	failed error
}

func (t *taker) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if t.failed = err; t.also != nil && err != nil {
		t.also.failed = err
	}
	return n, err
}

func (s *visitor) Close() (err error) {
	s.once.Do(func() {
		err = s.Session.Close()
		s.left()
		s.link.done()
	})
	return err
}

// Dial connects from a computer, which is woken, to a host and port or to a unix socket in it.
// localhost is any address that a program listens on at that port; other hosts are reached through
// its network, as far as its policy allows. The connection outlives ctx.
func (n *Sessions) Dial(ctx context.Context, computer string, to holt.SessionAddress, from string) (holt.PortConn, error) {
	if err := to.Check(false); err != nil {
		return nil, err
	}
	network, address := "tcp", to.String()
	if to.Socket != "" {
		network, address = "unix", string(to.Socket)
	}
	user := to.User
	if user == "" {
		user = defaultUser
	}
	r, err := n.table.find(ctx, computer)
	if err != nil {
		return nil, err
	}
	left, err := n.conns.enter(r, mostConns)
	if err != nil {
		return nil, err
	}
	l, err := n.reach(ctx, string(r.ID), holt.Use{Kind: holt.UseSSH, Detail: from + " to " + to.String()}, fmt.Sprintf("connection to %s in", to), func(ctx context.Context, l *link) error {
		conn, err := l.client.DialPortAs(ctx, network, address, user)
		if err == nil {
			l.conn = conn.(duplex)
		}
		return err
	})
	if err != nil {
		left()
		return nil, err
	}
	done := l.done
	l.done = func() { done(); left() }
	return &l.portConn, nil
}

// Listen listens in a computer, which is woken and stays awake: on a loopback port, or on a unix
// socket for its user only. The listener outlives ctx.
func (n *Sessions) Listen(ctx context.Context, computer string, at holt.SessionAddress, from string) (holt.SessionListener, error) {
	if err := at.Check(true); err != nil {
		return nil, err
	}
	network := "tcp"
	if at.Agent || at.Socket != "" {
		network = "unix"
	}
	var far *agent.Listener
	l, err := n.reach(ctx, computer, holt.Use{Kind: holt.UseSSH, Detail: from + " listens at " + at.String()}, "listener in", func(ctx context.Context, l *link) (err error) {
		far, err = l.client.Listen(ctx, network, at.Port, string(at.Socket), at.User)
		return err
	})
	if err != nil {
		return nil, err
	}
	at.Port, at.Socket = far.Port, holt.OSString(far.Path)
	return &listener{n: n, far: far, link: l, at: at}, nil
}

type listener struct {
	n    *Sessions
	far  *agent.Listener
	link *link
	at   holt.SessionAddress
	once sync.Once
}

func (l *listener) Address() holt.SessionAddress { return l.at }

func (l *listener) Accept(ctx context.Context) (holt.PortConn, string, error) {
	for {
		conn, from, err := l.far.Accept(ctx)
		if err != nil {
			return nil, "", l.link.why(err)
		}
		left, err := l.n.conns.enter(l.link.r, mostReached) // a guest makes them
		if err != nil {                                     // the connection is refused; the listener stays
			conn.Close()
			continue
		}
		far := &portConn{s: l.link.s, r: l.link.r, l: l.link.l, client: l.link.client, is: "connection from", conn: conn.(duplex), done: left}
		return far, from, nil
	}
}

func (l *listener) Close() (err error) {
	l.once.Do(func() {
		err = l.far.Close()
		l.link.done()
	})
	return err
}
