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

const hostWindow = 512 << 10 // bytes

// hostMuxConfig is muxConfig for the side that trusts the other one with
// nothing.
func hostMuxConfig() *yamux.Config {
	c := muxConfig()
	// yamux would wait, deaf to contexts, for a guest that acknowledges no
	// stream; with maxStreams open and as many on their way out it never does.
	c.AcceptBacklog = 2 * maxStreams
	// What a guest can have the daemon hold of a stream that nobody reads: as much as crosses in a round
	// trip on a busy host, and no more, since there are thousands of streams.
	c.MaxStreamWindowSize = hostWindow
	// A stream that was closed here is of no more interest. Until it is
	// forgotten a guest can fill its window, and each answer is a stream.
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
//
// Of a stream that was closed here, the guest's end (FIN) becomes a reset: if it comes just when yamux stops waiting
// for it, StreamCloseTimeout later, yamux 0.1.2 takes it for an error and ends the session ("unexpected FIN flag in state 6").
type guardConn struct {
	*muxConn
	held [muxHeader]byte // a header of which the rest is to come
	have int             // how much of it
	body uint32          // bytes of the frame's body to come

	mu      sync.Mutex
	streams map[uint32]guarded // those that are open on either side
}

// guarded is what the guard knows of a stream.
type guarded struct {
	unacked bool // by the guest
	left    bool // by the host
	ended   bool // by the guest
}

func newGuardConn(conn net.Conn) *guardConn {
	return &guardConn{muxConn: newMuxConn(conn), streams: map[uint32]guarded{}}
}

// Read returns whole headers only: p must have room for one, as yamux's has.
func (c *guardConn) Read(p []byte) (int, error) {
	for {
		copy(p, c.held[:c.have])
		n, err := c.muxConn.Read(p[c.have:])
		n, ok := c.admit(p[:c.have+n])
		if !ok {
			return 0, errHostile
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *guardConn) Write(p []byte) (int, error) {
	if !c.muxConn.held { // a header, before the guest can see it
		c.note(p)
	}
	return c.muxConn.Write(p)
}

// note remembers the streams that a header of ours opens, and forgets those that it resets. One that it ends needs no
// acknowledgement any more: an agent's yamux acknowledges none that has ended before it was accepted, and what the agent
// had to say is on its way.
func (c *guardConn) note(header []byte) {
	if len(header) != muxHeader {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	flags, id := binary.BigEndian.Uint16(header[2:]), binary.BigEndian.Uint32(header[4:])
	if flags&muxSYN != 0 {
		c.streams[id] = guarded{unacked: true}
	}
	if s, known := c.streams[id]; known && flags&muxFIN != 0 {
		s.unacked = false
		c.streams[id] = s
	}
	if flags&muxRST != 0 {
		delete(c.streams, id)
	}
}

// leave is told of a stream before it is closed here.
func (c *guardConn) leave(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s, known := c.streams[id]; {
	case s.ended:
		delete(c.streams, id)
	case known:
		s.left = true
		c.streams[id] = s
	}
}

// admit looks at what came, and says how much of it may be read now: all but a header that is not whole, which is held.
func (c *guardConn) admit(p []byte) (n int, ok bool) {
	c.have = 0
	for n < len(p) {
		if c.body > 0 {
			k := min(uint32(len(p)-n), c.body)
			n, c.body = n+int(k), c.body-k
			continue
		}
		if len(p)-n < muxHeader {
			c.have = copy(c.held[:], p[n:])
			break
		}
		if !c.admitHeader(p[n : n+muxHeader]) {
			return 0, false
		}
		n += muxHeader
	}
	return n, true
}

func (c *guardConn) admitHeader(header []byte) bool {
	kind, flags := header[1], binary.BigEndian.Uint16(header[2:])
	if kind > muxWindow || flags&muxSYN != 0 {
		return false
	}
	id, length := binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint32(header[8:])
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.streams[id]
	if s.left && flags&muxFIN != 0 {
		flags = flags&^muxFIN | muxRST
		binary.BigEndian.PutUint16(header[2:], flags)
	}
	s.unacked = s.unacked && flags&(muxACK|muxRST) == 0
	s.ended = s.ended || flags&muxFIN != 0
	switch {
	case flags&muxRST != 0:
		delete(c.streams, id)
	case known:
		c.streams[id] = s
	}
	if kind == muxData {
		if s.unacked {
			return false
		}
		c.body = length
	}
	return true
}
