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
	// joinSize is how much of a body is copied to be written together with a
	// frame's header: what a virtio-serial port accepts in one write.
	joinSize = 32 << 10
)

func muxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:   256,
		EnableKeepAlive: false, // a paused machine must not lose its session
		// yamux requires an interval anyway.
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
	// yamux would wait, ignoring contexts, for a guest that acknowledges no stream;
	// with at most maxStreams open and as many being opened it never does.
	c.AcceptBacklog = 2 * maxStreams
	// A guest can make the daemon buffer this much for each of thousands of unread
	// streams, so it is only as large as a round trip on a busy host needs.
	c.MaxStreamWindowSize = hostWindow
	// A stream that was closed here is not read any more. Until it is forgotten a
	// guest can fill its window, and each answer is a stream.
	c.StreamCloseTimeout = 100 * time.Millisecond
	return c
}

// muxConn is between yamux and a session. It joins a data frame's header, which
// yamux writes separately, with its body, which saves a packet and a system
// call each way. yamux writes from one goroutine, with the body right after its
// header.
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

var errHostile = errors.New("guest sent an invalid frame")

// guardConn passes to the host's yamux only what an agent sends: data and window
// updates of streams that the host opened. Streams opened by the guest would use
// memory, each ping would start a goroutine, and yamux never forgets a stream
// with data that was not acknowledged.
//
// For a stream that was closed here, the guest's end (FIN) becomes a reset: yamux 0.1.2 treats a FIN that
// arrives just after StreamCloseTimeout as an error and ends the session ("unexpected FIN flag in state 6").
type guardConn struct {
	*muxConn
	held [muxHeader]byte // an incomplete header
	have int             // its length so far
	body uint32          // remaining bytes of the frame's body

	mu      sync.Mutex
	streams map[uint32]guarded // streams open on either side
}

// guarded is the state of a stream.
type guarded struct {
	unacked bool // not acknowledged by the guest
	left    bool // closed by the host
	ended   bool // ended by the guest
}

func newGuardConn(conn net.Conn) *guardConn {
	return &guardConn{muxConn: newMuxConn(conn), streams: map[uint32]guarded{}}
}

// Read returns complete headers only: p must have room for one, as yamux's has.
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
	if !c.muxConn.held { // a header; noted before the guest can see it
		c.note(p)
	}
	return c.muxConn.Write(p)
}

// note adds streams that a sent header opens, and removes those that it resets.
// A stream that it ends needs no acknowledgement any more: the agent's yamux
// does not acknowledge a stream that ended before it was accepted, and the
// agent's data is on its way.
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

// leave marks a stream before it is closed here.
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

// admit checks received bytes and returns how many may be read now: an
// incomplete header is held back.
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
