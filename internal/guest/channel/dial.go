package channel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"holt"
)

// A lost preamble (the guest's agent was restarted, a port was reopened) is
// repeated after retryFirst, then with increasing delays.
const (
	retryFirst = time.Second
	retryMost  = 8 * time.Second
)

// Dial starts a session on conn, a connection to a guest's port: it sends
// preambles until the guest echoes the last one, and drops earlier bytes of the
// guest. The guest may still be booting. It returns when the session is
// established, when ctx ends (Timeout) or when conn ends (Unavailable); on an
// error it closes conn.
func Dial(ctx context.Context, conn net.Conn) (net.Conn, error) {
	d := dialer{conn: conn, stop: make(chan struct{})}
	interrupt := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	sent := make(chan struct{})
	go func() { defer close(sent); d.send() }()
	rest, err := d.await()
	if !interrupt() && err == nil {
		err = context.Cause(ctx)
	}
	close(d.stop)
	if err != nil {
		conn.Close()
		<-sent
		if ctx.Err() != nil {
			return nil, holt.Errorf(holt.Timeout, "guest agent did not answer in time: %w", context.Cause(ctx))
		}
		return nil, holt.Errorf(holt.Unavailable, "connection to the guest agent ended before it answered: %w", err)
	}
	<-sent
	return &hostConn{Conn: conn, rest: rest}, nil
}

type dialer struct {
	conn net.Conn
	stop chan struct{}

	mu     sync.Mutex
	latest nonce // only its echo counts: each preamble ends earlier sessions
	sent   bool
	found  bool
}

func (d *dialer) send() {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		d.mu.Lock()
		if d.found {
			d.mu.Unlock()
			return
		}
		d.latest, d.sent = newNonce(), true
		b := d.latest.preamble()
		d.mu.Unlock()
		if _, err := d.conn.Write(b); err != nil {
			return // the reader fails too
		}
		select {
		case <-d.stop:
			return
		case <-time.After(wait):
		}
	}
}

// await reads until the echo of the latest nonce and returns the bytes after it.
func (d *dialer) await() ([]byte, error) {
	buf := make([]byte, 64<<10)
	kept := 0 // bytes of buf that may be the beginning of an echo
	for {
		n, err := d.conn.Read(buf[kept:])
		if rest, ok := d.search(buf[:kept+n]); ok {
			return bytes.Clone(rest), nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		tail := min(kept+n, magicSize+nonceSize-1)
		copy(buf, buf[kept+n-tail:kept+n])
		kept = tail
	}
}

func (d *dialer) search(b []byte) (rest []byte, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.sent {
		return nil, false
	}
	want := d.latest.echo()
	i := bytes.Index(b, want)
	if i < 0 {
		return nil, false
	}
	d.found = true
	return b[i+len(want):], true
}

// hostConn is the host's end of a session.
type hostConn struct {
	net.Conn
	rest []byte // bytes read after the echo

	mu     sync.Mutex
	broken error // a packet is incomplete; the guest would misread further bytes
}

func (c *hostConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *hostConn) Write(p []byte) (int, error) {
	if err := c.WriteBuffers(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteBuffers writes bufs without copying them. After an error, including a
// timeout, no more can be written.
func (c *hostConn) WriteBuffers(bufs ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	out := packets(bufs)
	if _, err := out.WriteTo(c.Conn); err != nil {
		c.broken = err
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.broken = net.ErrClosed
		}
		return err
	}
	return nil
}
