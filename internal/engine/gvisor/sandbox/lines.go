package sandbox

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

const (
	// hangUp zeros tell the agent that its session is over, since a FIFO does not:
	// more than the rest of any packet of package channel.
	hangUp     = 68 << 10
	maxFrame   = 128 << 10 // of the network's link, bytes; more than a frame with its headers
	maxConsole = 1 << 20   // bytes
)

// lines are the machine's ports other than that of the files.
type lines struct {
	log     *slog.Logger
	in, out *os.File // the guest's ends of the line to its agent: FIFOs, which are others in a restored sandbox
	frames  *net.UnixListener
}

// openLines opens the ports of the agent and the network.
func openLines(log *slog.Logger) (*lines, error) {
	l := &lines{log: log}
	var near [2]*os.File
	for i, name := range []string{"in", "out"} {
		path := bundleDir + "/" + name
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		far, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		if near[i], err = os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil { // of its own, since gVisor's is non-blocking or not as it likes
			return nil, err
		}
		if i == 0 {
			l.in = far
		} else {
			l.out = far
		}
	}
	control, err := listen(machine.Socket(machine.PortControl), "unix")
	if err != nil {
		return nil, err
	}
	if l.frames, err = listen(machine.Socket(machine.PortNetwork), "unixpacket"); err != nil {
		return nil, err
	}
	host := &host{}
	go host.receive(near[1], make([]byte, 256<<10), 0)
	go host.serve(control, func(c *net.UnixConn) {
		io.Copy(near[0], c)
		near[0].Write(make([]byte, hangUp))
	})
	return l, nil
}

func listen(path, network string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
}

// network passes frames between the guest's link and the network process. A
// message on the link is a frame; to the network process its length precedes it.
func (l *lines) network(link *os.File) {
	unix.SetNonblock(int(link.Fd()), true)
	conn, err := net.FilePacketConn(link)
	if err != nil {
		l.log.Error("no network", "err", err)
		return
	}
	near := conn.(*net.UnixConn)
	host := &host{}
	go host.receive(near, make([]byte, 4+maxFrame), 4)
	host.serve(l.frames, func(c *net.UnixConn) {
		b := make([]byte, 4+maxFrame)
		for {
			n, err := c.Read(b)
			if err != nil || n <= 4 {
				return
			}
			near.Write(b[4:n]) // a frame that is refused is lost, as on a wire
		}
	})
}

// host is the far end of a port: one connection at a time.
type host struct {
	mu   sync.Mutex
	conn net.Conn // nil: none, and what the guest sends is lost
}

// serve accepts one connection after the other.
func (h *host) serve(l *net.UnixListener, pass func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		h.set(c)
		pass(c)
		h.set(nil)
		c.Close()
	}
}

func (h *host) set(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = c
}

// receive passes what the guest sends to the connection. If prefix is 4, each
// read is a message and its length precedes it.
func (h *host) receive(from io.Reader, b []byte, prefix int) {
	for {
		n, err := from.Read(b[prefix:])
		if err != nil {
			return
		}
		if prefix > 0 {
			binary.BigEndian.PutUint32(b, uint32(n))
		}
		h.mu.Lock()
		c := h.conn
		h.mu.Unlock()
		if c != nil {
			c.Write(b[:prefix+n]) // if it fails, its reader fails too
		}
	}
}

// takeConsole makes a pipe the standard output and error that the guest gets, and copies it to the
// console's log.
func takeConsole() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(machine.ConsoleFile, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open console log: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stdin, os.Stdout, os.Stderr = null, w, w
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := r.Read(b)
			if err != nil {
				return
			}
			if info, err := log.Stat(); err == nil && info.Size() > maxConsole {
				shorten(log, info.Size())
			}
			log.Write(b[:n])
		}
	}()
	return nil
}

// shorten keeps the second half of a log.
func shorten(log *os.File, size int64) {
	b := make([]byte, maxConsole/2)
	n, err := log.ReadAt(b, size-int64(len(b)))
	if err == nil && log.Truncate(0) == nil {
		log.Write(b[:n])
	}
}
