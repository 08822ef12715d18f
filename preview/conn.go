package preview

import (
	"context"
	"net"
	"os"
	"time"

	"holt"
)

// dial makes a connection of the pool: addr is the id of a computer and a port of it, whatever the request says, and
// nothing of the host is ever dialled.
func (d *Door) dial(ctx context.Context, _, addr string) (net.Conn, error) {
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
	far, err := d.store.cfg.Ports.Reach(ctx, id, holt.PortAddress{Port: port})
	if err != nil {
		return nil, err
	}
	return conn{far}, nil
}

// conn is a connection to a port as package net has them. What waits for it is bounded by closing it.
type conn struct{ holt.PortConn }

type address struct{}

func (address) Network() string { return "computer" }
func (address) String() string  { return "computer" }

func (conn) LocalAddr() net.Addr              { return address{} }
func (conn) RemoteAddr() net.Addr             { return address{} }
func (conn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (conn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
