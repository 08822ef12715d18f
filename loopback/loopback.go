// Package loopback listens where this machine alone reaches it, at 127.0.0.1 and ::1 together: many programs try the one
// of both first that the host's resolver names first for localhost, and nothing else.
//
// It is not for other addresses: an IP address that somebody names is listened at as it is.
package loopback

import (
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
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != Name {
		return net.Listen("tcp", address)
	}
	for range tries {
		l, err := both(port)
		if err == nil || port != "0" || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, fmt.Errorf("no port is free at 127.0.0.1 and ::1: %w", syscall.EADDRINUSE)
}

func both(port string) (net.Listener, error) {
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
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
