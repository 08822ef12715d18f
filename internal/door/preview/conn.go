package preview

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"holt"
)

// dial makes a connection of the pool. addr is the id of a computer and a port, set by rewrite, so it never dials an
// address of the host.
func (d *Door) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	far, err := d.reach(ctx, addr)
	if err != nil {
		return nil, noConnection{err}
	}
	return conn{far}, nil
}

// noConnection is the error of a failed connection to an app.
type noConnection struct{ error }

func (e noConnection) Unwrap() error { return e.error }

func (d *Door) reach(ctx context.Context, addr string) (holt.PortConn, error) {
	id, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if _, err := holt.ParseComputerID(id); err != nil {
		return nil, err
	}
	port, err := holt.ParsePort(number)
	if err != nil {
		return nil, err
	}
	if a := answerOf(ctx); a != nil { // the request no longer waits for a connection of others
		a.queued.Stop()
	}
	to := holt.PortAddress{Port: port}
	far, err := d.store.cfg.Ports.Reach(ctx, id, to)
	if now := time.Now().Unix(); holt.CodeOf(err) == holt.TooMany && d.idled.Swap(now) != now { // the limit may be taken by idle connections to other ports
		d.transport.CloseIdleConnections() // of all computers, so once a second at most
		far, err = d.store.cfg.Ports.Reach(ctx, id, to)
	}
	if holt.CodeOf(err) == holt.Unavailable && !mayNotWake(ctx) {
		far, err = d.reachAgain(ctx, id, to, err)
	}
	return far, err
}

// reachAgain wakes a computer that was paused after the request's use was marked, and connects. Otherwise it returns why.
func (d *Door) reachAgain(ctx context.Context, id string, to holt.PortAddress, why error) (holt.PortConn, error) {
	c, err := d.store.cfg.Computers.Get(ctx, id)
	if err != nil || c.State == holt.ComputerRunning {
		return nil, why
	}
	detail := fmt.Sprintf("preview of port %d", to.Port)
	if a := answerOf(ctx); a != nil {
		detail = useOf(a.r, a.site)
	}
	_, done, err := d.store.cfg.Computers.Wake(ctx, id, holt.UseConnection, detail)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.store.cfg.Ports.Reach(ctx, id, to)
}

// mayNotWake reports that a connection is for a public visit that does not count as a use.
func mayNotWake(ctx context.Context) bool {
	a := answerOf(ctx)
	return a != nil && a.idle
}

// conn makes a net.Conn of a connection to a port. It has no deadlines: it is closed instead.
type conn struct{ holt.PortConn }

type address struct{}

func (address) Network() string { return "computer" }
func (address) String() string  { return "computer" }

func (conn) LocalAddr() net.Addr              { return address{} }
func (conn) RemoteAddr() net.Addr             { return address{} }
func (conn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (conn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
