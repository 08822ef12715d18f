package channel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Socket is a [Line] on a listening unix socket. Like a port of QEMU it has one
// connection at a time; the next waits until the current one ends.
type Socket struct {
	listener *net.UnixListener

	mu   sync.Mutex // never held during a wait
	conn *net.UnixConn
}

// ListenSocket listens at path, replacing an existing socket file. The mode of
// the directory controls access.
func ListenSocket(path string) (*Socket, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on port socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on port socket: %w", err)
	}
	return &Socket{listener: l}, nil
}

func (s *Socket) current() *net.UnixConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// host returns the connection, and waits for one if needed.
func (s *Socket) host() (*net.UnixConn, error) {
	if c := s.current(); c != nil {
		return c, nil
	}
	c, err := s.listener.AcceptUnix()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.listener.SetDeadline(time.Time{})
		return nil, errWoken
	} else if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	return c, nil
}

func (s *Socket) Read(p []byte) (int, error) {
	c, err := s.host()
	if err != nil {
		return 0, err
	}
	n, err := c.Read(p)
	switch {
	case n > 0 || err == nil:
		return n, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.SetReadDeadline(time.Time{})
		return 0, errWoken
	case errors.Is(err, net.ErrClosed):
		return 0, err
	}
	s.mu.Lock()
	s.conn = nil
	s.mu.Unlock()
	c.Close()
	return 0, io.EOF // a reset counts as a hang-up
}

func (s *Socket) Write(p []byte) (int, error) {
	c := s.current()
	if c == nil {
		return 0, ErrHungUp
	}
	n, err := c.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.SetWriteDeadline(time.Time{})
		return n, errWoken
	} else if err != nil {
		return n, ErrHungUp
	}
	return n, nil
}

func (s *Socket) wakeRead() {
	s.listener.SetDeadline(time.Unix(1, 0))
	if c := s.current(); c != nil {
		c.SetReadDeadline(time.Unix(1, 0))
	}
}

func (s *Socket) wakeWrite() {
	if c := s.current(); c != nil {
		c.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Close removes the socket file and ends running reads and writes.
func (s *Socket) Close() error {
	err := s.listener.Close()
	if c := s.current(); c != nil {
		c.Close()
	}
	return err
}
