package agent

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/loopback"
)

const (
	opListen = "listen"
	opAccept = "accept"

	maxListeners  = 64 // at once
	maxUnaccepted = 16 // connections announced to the host and not accepted yet
	listenBacklog = 64 // further connections that wait in the kernel
	acceptWithin  = 10 * time.Second
	listenBeat    = 5 * time.Second
	lowPorts      = 1024 // lower ports are reserved to root
)

type listenArgs struct {
	Network string `json:"network"` // tcp or unix
	Port    int    `json:"port,omitempty"`
	Path    string `json:"path,omitempty"` // "": in a new directory
	User    string `json:"user,omitempty"`
}

type listenAnswer struct {
	ID   uint64 `json:"id"`
	Port int    `json:"port,omitempty"`
	Path string `json:"path,omitempty"`
}

// announced is the message to the host about a new connection; number 0 only checks that the host is there.
type announced struct {
	Number uint64 `json:"number,omitempty"`
	From   string `json:"from,omitempty"`
}

type acceptArgs struct {
	ID     uint64 `json:"id"`
	Number uint64 `json:"number"`
}

// listened are the hosts' listeners in this guest. The host accepts no streams
// from the guest. So a connection is announced on the listener's stream, and
// the host opens another stream for it.
type listened struct {
	mu   sync.Mutex
	next uint64
	set  map[uint64]*guestListener
}

type guestListener struct {
	at   net.Listener
	room chan struct{} // semaphore of unaccepted connections

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]net.Conn // nil: the listener has ended
}

// listen listens at a loopback port or a unix socket for as long as the stream lasts.
func (s *Server) listen(ctx context.Context, st *serverStream) error {
	args, err := decode[listenArgs](st.args)
	if err != nil {
		return err
	}
	user, err := findAccount(args.User)
	if err != nil {
		return err
	}
	at, answer, remove, err := listenAt(args, user)
	if err != nil {
		return err
	}
	defer remove()
	defer at.Close()
	g := &guestListener{at: at, room: make(chan struct{}, maxUnaccepted), waiting: map[uint64]net.Conn{}}
	if answer.ID, err = s.listened.enter(g); err != nil {
		return err
	}
	defer s.listened.leave(answer.ID)
	if err := st.agree(answer); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { at.Close() })
	var sending sync.Mutex
	tell := func(c announced) error {
		sending.Lock()
		defer sending.Unlock()
		return writeMessage(st, c)
	}
	go func() { // detects a host that is gone
		for ctx.Err() == nil {
			if tell(announced{}) != nil {
				cancel()
			}
			select {
			case <-ctx.Done():
			case <-time.After(listenBeat):
			}
		}
	}()
	return g.accept(ctx, tell)
}

// listenAt creates a listener. remove removes its files.
func listenAt(args listenArgs, user account) (at net.Listener, answer listenAnswer, remove func(), err error) {
	remove = func() {}
	switch {
	case args.Network == "tcp" && args.Port >= 0 && args.Port < 1<<16:
		if args.Port > 0 && args.Port < lowPorts && user.UID != 0 {
			return nil, answer, remove, holt.Errorf(holt.Forbidden, "%s may not listen at port %d", user.Name, args.Port).
				WithHint("choose one from %d on", lowPorts)
		}
		if at, err = loopback.Listen(net.JoinHostPort(loopback.Name, strconv.Itoa(args.Port))); err != nil {
			return nil, answer, remove, holt.Errorf(holt.AlreadyExists, "listen at port %d: %w", args.Port, err)
		}
		answer.Port = at.Addr().(*net.TCPAddr).Port
		return at, answer, remove, nil
	case args.Network == "unix" && args.Path != "":
		answer.Path = args.Path
		remove = func() { as(user, func() error { return unix.Unlink(args.Path) }) }
	case args.Network == "unix":
		dir, err := os.MkdirTemp("", "ssh-")
		if err != nil {
			return nil, answer, remove, holt.Errorf(holt.Unavailable, "make a directory for a socket: %w", err)
		}
		remove = func() { os.RemoveAll(dir) }
		if err := os.Lchown(dir, int(user.UID), int(user.GID)); err != nil {
			remove()
			return nil, answer, remove, holt.Errorf(holt.Unavailable, "make a directory for a socket: %w", err)
		}
		answer.Path = filepath.Join(dir, "agent")
	default:
		return nil, answer, remove, holt.Errorf(holt.InvalidArgument, "listen %q: network must be tcp or unix", clip(args.Network))
	}
	if err = checkPath(answer.Path); err == nil {
		at, err = listenAs(user, answer.Path)
	}
	if err != nil && args.Path == "" {
		remove()
	}
	return at, answer, remove, err
}

func (t *listened) enter(g *guestListener) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.set) >= maxListeners {
		return 0, holt.Errorf(holt.TooMany, "too many listeners: %d are open in this computer", maxListeners).WithHint("end some forwards first")
	}
	if t.set == nil {
		t.set = map[uint64]*guestListener{}
	}
	t.next++
	t.set[t.next] = g
	return t.next, nil
}

func (t *listened) leave(id uint64) {
	t.mu.Lock()
	g := t.set[id]
	delete(t.set, id)
	t.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range g.waiting {
		conn.Close()
	}
	g.waiting = nil
}

// accept announces connections until the listener is closed.
func (g *guestListener) accept(ctx context.Context, tell func(announced) error) error {
	for {
		select {
		case g.room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		conn, err := g.at.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		from := ""
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			from = a.String()
		}
		if err := tell(announced{Number: g.put(conn), From: from}); err != nil {
			return err
		}
	}
}

// put keeps a connection for some time until it is accepted.
func (g *guestListener) put(conn net.Conn) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	number := g.next
	if g.waiting == nil {
		conn.Close()
		return number
	}
	g.waiting[number] = conn
	time.AfterFunc(acceptWithin, func() {
		if late := g.take(number); late != nil {
			late.Close()
		}
	})
	return number
}

// take returns a waiting connection; nil if there is none of that number.
func (g *guestListener) take(number uint64) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	conn := g.waiting[number]
	if conn != nil {
		delete(g.waiting, number)
		<-g.room
	}
	return conn
}

// acceptListened carries an announced connection.
func (s *Server) acceptListened(ctx context.Context, st *serverStream) error {
	args, err := decode[acceptArgs](st.args)
	if err != nil {
		return err
	}
	s.listened.mu.Lock()
	g := s.listened.set[args.ID]
	s.listened.mu.Unlock()
	var conn net.Conn
	if g != nil {
		conn = g.take(args.Number)
	}
	if conn == nil {
		return holt.Errorf(holt.NotFound, "the connection does not exist any more")
	}
	defer conn.Close()
	if err := st.agree(nil); err != nil {
		return err
	}
	return carryConn(st, conn)
}

// Listen listens in the guest: network "tcp" at a loopback port (0: any),
// "unix" at a path ("": chosen by the guest), which belongs to user. The
// listener outlives ctx.
func (c *Client) Listen(ctx context.Context, network string, port int, path, user string) (*Listener, error) {
	var answer listenAnswer
	s, err := c.open(ctx, opListen, listenArgs{Network: network, Port: port, Path: path, User: user}, &answer)
	if err != nil {
		return nil, err
	}
	if !s.stop() {
		s.Close()
		return nil, describe(ctx, opListen, ctx.Err())
	}
	l := &Listener{c: c, s: s, id: answer.ID, Port: port, Path: path}
	if port == 0 && network == "tcp" {
		l.Port = answer.Port
	}
	if path == "" && network == "unix" {
		l.Path = plain(answer.Path, mostSocket)
	}
	if l.Port < 0 || l.Port >= 1<<16 || network == "unix" && !filepath.IsAbs(l.Path) {
		s.Close()
		return nil, holt.Errorf(holt.Corrupt, "guest reports an invalid listening address: %d, %q", l.Port, clip(l.Path))
	}
	return l, nil
}

// mostSocket is the maximum length of a unix socket's path, see unix(7).
const mostSocket = 107

// Listener is a port or unix socket of the guest at which the host listens.
type Listener struct {
	Port int
	Path string
	c    *Client
	s    *clientStream
	id   uint64
}

// Accept returns the next connection and its origin. Calls must not be
// concurrent; Close ends a running call.
func (l *Listener) Accept(ctx context.Context) (conn net.Conn, from string, err error) {
	for {
		var came announced
		if err := readMessage(l.s, &came); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, "", describe(ctx, opListen, err)
		}
		if came.Number == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, acceptWithin)
		conn, err := l.c.connect(bounded, opAccept, acceptArgs{ID: l.id, Number: came.Number})
		cancel()
		switch {
		case err == nil:
			return conn, plain(came.From, maxWord), nil
		case ctx.Err() != nil || l.ended():
			return nil, "", err
		}
		// That connection has gone; wait for the next.
	}
}

func (l *Listener) ended() bool {
	select {
	case <-l.c.Done():
		return true
	default:
		return false
	}
}

// Close closes the listener. Accepted connections continue.
func (l *Listener) Close() error { return l.s.Close() }
