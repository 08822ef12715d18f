package agent

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	muxHeader = 12 // version, type, flags u16, stream u32, length u32
	muxData   = 0
	muxWindow = 1
	muxSYN    = 1
	muxACK    = 2
	muxFIN    = 4
	muxRST    = 8
	// joinSize is how much of a body is copied so that a frame's header does
	// not go out on its own. It is what a virtio-serial port takes at once.
	joinSize = 32 << 10
)

func muxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:   256,
		EnableKeepAlive: false, // a paused machine must not lose its session
		// yamux wants an interval even so.
		KeepAliveInterval: time.Hour,
		// How long one message may wait for a guest that does not read.
		ConnectionWriteTimeout: 2 * time.Minute,
		MaxStreamWindowSize:    4 << 20,
		StreamOpenTimeout:      0, // the same machine may be paused
		StreamCloseTimeout:     5 * time.Minute,
		LogOutput:              io.Discard,
	}
}

// hostMuxConfig is muxConfig for the side that trusts the other one with
// nothing.
func hostMuxConfig() *yamux.Config {
	c := muxConfig()
	// yamux would wait, deaf to contexts, for a guest that acknowledges no
	// stream; with maxStreams open and as many on their way out it never does.
	c.AcceptBacklog = 2 * maxStreams
	// A stream that was closed here is of no more interest. Until it is
	// forgotten a guest can fill its window, 4 MiB, and each answer is a stream.
	c.StreamCloseTimeout = 100 * time.Millisecond
	return c
}

// muxConn stands between yamux and a session. It joins a data frame's header,
// which yamux writes on its own, to its body: a packet and a system call less
// each way. yamux writes from one goroutine, and a body right after its header.
type muxConn struct {
	net.Conn
	header [muxHeader]byte
	held   bool
	join   []byte
	vec    interface{ WriteBuffers(bufs ...[]byte) error }
}

func newMuxConn(conn net.Conn) *muxConn {
	c := &muxConn{Conn: conn}
	c.vec, _ = conn.(interface{ WriteBuffers(bufs ...[]byte) error })
	return c
}

func (c *muxConn) Write(p []byte) (int, error) {
	if !c.held {
		if len(p) == muxHeader && p[1] == muxData && binary.BigEndian.Uint32(p[8:]) > 0 {
			copy(c.header[:], p)
			c.held = true
			return len(p), nil
		}
		return c.Conn.Write(p)
	}
	c.held = false
	if c.vec != nil {
		return len(p), c.vec.WriteBuffers(c.header[:], p)
	}
	c.join = append(c.join[:0], c.header[:]...)
	n := min(len(p), joinSize-muxHeader)
	c.join = append(c.join, p[:n]...)
	if _, err := c.Conn.Write(c.join); err != nil {
		return 0, err
	}
	if n < len(p) {
		if _, err := c.Conn.Write(p[n:]); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

var errHostile = errors.New("guest sent what no agent sends")

// guardConn lets through to the host's yamux only what an agent sends: data
// and window updates of streams that the host opened. Streams of the guest's
// own would take memory, each ping would start a goroutine, and of a stream
// that carries data without having been acknowledged yamux keeps a trace for ever.
type guardConn struct {
	*muxConn
	header [muxHeader]byte
	have   int    // bytes of the header seen
	body   uint32 // bytes of the frame's body to come

	mu      sync.Mutex
	unacked map[uint32]struct{} // streams that the guest has not acknowledged
}

func newGuardConn(conn net.Conn) *guardConn {
	return &guardConn{muxConn: newMuxConn(conn), unacked: map[uint32]struct{}{}}
}

func (c *guardConn) Read(p []byte) (int, error) {
	n, err := c.muxConn.Read(p)
	if !c.admit(p[:n]) {
		return 0, errHostile
	}
	return n, err
}

func (c *guardConn) Write(p []byte) (int, error) {
	if !c.held { // a header, before the guest can see it
		c.note(p)
	}
	return c.muxConn.Write(p)
}

// note remembers the streams that a header of ours opens, and forgets those
// that it ends: an agent's yamux acknowledges none that has ended before it was
// accepted, and what the agent had to say is on its way.
func (c *guardConn) note(header []byte) {
	if len(header) != muxHeader {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	flags, id := binary.BigEndian.Uint16(header[2:]), binary.BigEndian.Uint32(header[4:])
	if flags&muxSYN != 0 {
		c.unacked[id] = struct{}{}
	}
	if flags&(muxFIN|muxRST) != 0 {
		delete(c.unacked, id)
	}
}

func (c *guardConn) admit(p []byte) bool {
	for len(p) > 0 {
		if c.body > 0 {
			k := min(uint32(len(p)), c.body)
			p, c.body = p[k:], c.body-k
			continue
		}
		k := copy(c.header[c.have:], p)
		p, c.have = p[k:], c.have+k
		if c.have < muxHeader {
			return true
		}
		c.have = 0
		if !c.admitHeader() {
			return false
		}
	}
	return true
}

func (c *guardConn) admitHeader() bool {
	kind, flags := c.header[1], binary.BigEndian.Uint16(c.header[2:])
	if kind > muxWindow || flags&muxSYN != 0 {
		return false
	}
	id, length := binary.BigEndian.Uint32(c.header[4:]), binary.BigEndian.Uint32(c.header[8:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if flags&(muxACK|muxRST) != 0 {
		delete(c.unacked, id)
	}
	if kind == muxData {
		if _, early := c.unacked[id]; early {
			return false
		}
		c.body = length
	}
	return true
}
