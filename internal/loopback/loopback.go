// Package loopback listens where this machine alone reaches it, at 127.0.0.1 and ::1 together: many programs try the one
// of both first that the host's resolver names first for localhost, and nothing else.
//
// It is not for other addresses: an IP address that somebody names is listened at as it is.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Name is the host of an address that stands for 127.0.0.1 and ::1.
const Name = "localhost"

const tries = 20 // for a port that is free at both addresses

// Listen listens at a TCP address. If its host is [Name] it listens at 127.0.0.1 and at ::1, at the same port: port 0 is
// one that is free at both. A host that has only one of the two gets that one. The error of an address that is taken
// names it and wraps EADDRINUSE.
func Listen(address string) (net.Listener, error) {
	return listen(address, func(port string) (net.Listener, error) {
		return net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
	})
}

// ListenAll is Listen, but where that listens at 127.0.0.1 it listens at all of 127.0.0.0/8, if the host lets it and no other program
// listens at any address at that port. [All] says whether it does.
func ListenAll(address string) (l net.Listener, err error) {
	host, port, _ := net.SplitHostPort(address)
	switch host {
	case Name:
		l, err = listen(address, wide)
	case "127.0.0.1":
		l, err = wide(port)
	default:
		return net.Listen("tcp", address)
	}
	if err != nil {
		return Listen(address)
	}
	return l, nil
}

// All says whether a listener of this package listens at all of 127.0.0.0/8.
func All(l net.Listener) bool {
	if p, ok := l.(*pair); ok {
		l = p.all[0]
	}
	_, device := l.(device)
	return device || l.Addr().(*net.TCPAddr).IP.IsUnspecified()
}

// wide listens at a port of all of 127.0.0.0/8: at every address, but at the loopback's device only.
func wide(port string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var refused error
		err := c.Control(func(fd uintptr) {
			refused = syscall.SetsockoptString(int(fd), syscall.SOL_SOCKET, syscall.SO_BINDTODEVICE, "lo")
		})
		return errors.Join(err, refused)
	}}
	l, err := config.Listen(context.Background(), "tcp4", net.JoinHostPort("0.0.0.0", port))
	if err != nil {
		return nil, err
	}
	return device{l}, nil
}

// device is a listener at the loopback's device. This machine reaches its other addresses through that, too: who comes to one of
// those is not let in.
type device struct{ net.Listener }

func (d device) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil || conn.LocalAddr().(*net.TCPAddr).IP.IsLoopback() {
			return conn, err
		}
		conn.Close()
	}
}

// Addr is the address that the others stand beside.
func (d device) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: d.Listener.Addr().(*net.TCPAddr).Port}
}

func listen(address string, at4 func(port string) (net.Listener, error)) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != Name {
		return net.Listen("tcp", address)
	}
	for range tries {
		l, err := both(port, at4)
		if err == nil || port != "0" || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, fmt.Errorf("no port is free at 127.0.0.1 and ::1: %w", syscall.EADDRINUSE)
}

func both(port string, at4 func(port string) (net.Listener, error)) (net.Listener, error) {
	four, err := at4(port)
	if err != nil && !absent(err) {
		return nil, err
	}
	if four != nil {
		port = strconv.Itoa(four.Addr().(*net.TCPAddr).Port)
	}
	six, lost := net.Listen("tcp6", net.JoinHostPort("::1", port))
	switch {
	case lost == nil && four == nil:
		return six, nil
	case lost != nil && four == nil:
		return nil, err
	case lost == nil:
		return join(four, six), nil
	case absent(lost):
		return four, nil
	}
	four.Close()
	return nil, lost
}

// absent says that the host does not have an address.
func absent(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// Addresses are all that a listener of this package listens at.
func Addresses(l net.Listener) (all []string) {
	if p, ok := l.(*pair); ok {
		for _, one := range p.all {
			all = append(all, one.Addr().String())
		}
		return all
	}
	return []string{l.Addr().String()}
}

// pair is several listeners as one. Its address is that of the first.
type pair struct {
	all    []net.Listener
	ready  chan accepted
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func join(all ...net.Listener) *pair {
	p := &pair{all: all, ready: make(chan accepted), closed: make(chan struct{})}
	for _, l := range all {
		p.wg.Go(func() { p.take(l) })
	}
	return p
}

// take passes on what one listener accepts. Each waits until it is asked for, so an error is not repeated without end.
func (p *pair) take(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case p.ready <- accepted{conn, err}:
		case <-p.closed:
			if conn != nil {
				conn.Close()
			}
			return
		}
	}
}

func (p *pair) Accept() (net.Conn, error) {
	select {
	case one := <-p.ready:
		return one.conn, one.err
	case <-p.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: p.Addr(), Err: net.ErrClosed}
	}
}

func (p *pair) Addr() net.Addr { return p.all[0].Addr() }

func (p *pair) Close() (err error) {
	p.once.Do(func() {
		close(p.closed)
		for _, l := range p.all {
			err = errors.Join(err, l.Close())
		}
		p.wg.Wait()
	})
	return err
}
