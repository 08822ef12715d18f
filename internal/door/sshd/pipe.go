package sshd

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"holt"
)

// duplexPipe returns both ends of a connection within this process. It is a socket pair, which buffers writes: in an SSH
// handshake both sides write first.
func duplexPipe() (near holt.PortConn, far net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, holt.Errorf(holt.TooMany, "make a connection: %w", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "ssh")
		c, failed := net.FileConn(f)
		f.Close()
		ends[i], err = c, errors.Join(err, failed)
	}
	if err != nil {
		for _, c := range ends {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, holt.Errorf(holt.TooMany, "make a connection: %w", err)
	}
	return pipeEnd{ends[0].(*net.UnixConn)}, ends[1], nil
}

// pipeEnd is the near end. It returns io.EOF also if the far end was closed with unread data.
type pipeEnd struct{ *net.UnixConn }

func (p pipeEnd) Read(b []byte) (int, error) {
	n, err := p.UnixConn.Read(b)
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	return n, err
}
