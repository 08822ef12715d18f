package netstack

import (
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw reads and writes a non-blocking socket by system calls that the runtime
// does not see. Otherwise each call after a pause wakes a thread that polls
// every 20 µs, which is half the cost of a round trip.
type raw struct{ conn syscall.RawConn }

func (r raw) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	over := r.conn.Read(func(fd uintptr) bool {
		n, err = call(unix.SYS_READ, fd, b)
		return err != unix.EAGAIN
	})
	switch {
	case over != nil:
		return 0, over
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (r raw) Write(b []byte) (n int, err error) {
	over := r.conn.Write(func(fd uintptr) bool {
		for err = nil; n < len(b) && err == nil; {
			var k int
			k, err = call(unix.SYS_WRITE, fd, b[n:])
			n += k
		}
		return err != unix.EAGAIN
	})
	switch {
	case over != nil:
		return n, over
	case err != nil:
		return n, os.NewSyscallError("write", err)
	}
	return n, nil
}

// call is read(2) or write(2) of at least a byte.
func call(number, fd uintptr, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// reader returns a raw reader of a connection, if possible.
func reader(conn io.Reader) io.Reader {
	if sc, ok := conn.(syscall.Conn); ok {
		if c, err := sc.SyscallConn(); err == nil {
			return raw{c}
		}
	}
	return conn
}
