package channel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Line is the guest's end of a byte stream to which hosts connect one after the
// other: a [Device], a [Socket] or a [Pipe].
type Line interface {
	// Read returns io.EOF once when the host hangs up. The next call waits for the next host.
	Read(p []byte) (int, error)
	// Write writes all of p, or returns [ErrHungUp] when there is no host.
	Write(p []byte) (int, error)
	// wakeRead makes the running or the next Read return errWoken; wakeWrite does so for Write.
	wakeRead()
	wakeWrite()
	Close() error
}

// Port accepts the sessions of a [Line], one after the other.
type Port struct {
	line Line

	accept sync.Mutex
	cur    *session // guarded by accept

	rd sync.Mutex
	in inbound // guarded by rd

	wr sync.Mutex // orders writes to line
}

// NewPort returns the port on line, which it owns.
func NewPort(line Line) *Port {
	return &Port{line: line, in: inbound{r: line, scanning: true}}
}

// Close closes the session, if there is one, and the line.
func (p *Port) Close() error { return p.line.Close() }

// HangUp ends the session of a host with an earlier agent, whose process was
// killed (a port cannot be hung up). It sends enough bytes 0xff to complete any
// message in progress and then form an invalid one, both as a frame and for
// yamux. A host that is dialling drops them. It returns [ErrHungUp] when no
// host is connected.
func (p *Port) HangUp() error {
	p.wr.Lock()
	defer p.wr.Unlock()
	b := bytes.Repeat([]byte{0xff}, 32<<10)
	for left := MaxFrame + FrameHeader; left > 0; {
		n, err := p.line.Write(b)
		if left -= n; err != nil && !errors.Is(err, errWoken) {
			return err
		}
	}
	return nil
}

// Accept waits for the end of the current session and for the next host's
// preamble, answers it, and returns the session. Errors are those of the line and
// are final.
//
// A session has no deadlines. It ends (io.EOF) when the host hangs up, when
// another session begins, or by Close.
func (p *Port) Accept() (net.Conn, error) {
	p.accept.Lock()
	defer p.accept.Unlock()
	if p.cur != nil {
		<-p.cur.over
	}
	for {
		n, err := p.await()
		if err != nil {
			return nil, err
		}
		s := &session{port: p, over: make(chan struct{}), noted: time.Now().Add(notedWithin)}
		if _, err := s.Write(n.echo()); errors.Is(err, ErrHungUp) {
			continue // its sender has gone
		} else if err != nil {
			return nil, err
		}
		p.cur = s
		return s, nil
	}
}

// The kernel may deliver a host's bytes before it registers the host, and,
// after a restore, before it registers that the earlier host is gone. So at the
// beginning of a session a missing host means nothing: writes are retried and
// reads wait. If the host is really gone, the preamble of the next host ends
// the session.
const (
	notedWithin = 250 * time.Millisecond
	notedEvery  = 2 * time.Millisecond
)

// await returns the nonce of the next preamble.
func (p *Port) await() (nonce, error) {
	p.rd.Lock()
	defer p.rd.Unlock()
	for {
		n, err := p.in.find()
		if err == nil || (!errors.Is(err, io.EOF) && !errors.Is(err, errWoken)) {
			return n, err
		}
	}
}

// session is the guest's end of one session. It implements net.Conn.
type session struct {
	port  *Port
	once  sync.Once
	over  chan struct{}
	noted time.Time // when the kernel had registered the host
}

func (s *session) isNoted() bool { return time.Now().After(s.noted) }

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s *session) Read(p []byte) (int, error) {
	s.port.rd.Lock()
	defer s.port.rd.Unlock()
	for !s.isOver() {
		n, err := s.port.in.read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if !errors.Is(err, errWoken) && (s.isNoted() || !errors.Is(err, io.EOF)) {
			s.Close()
			if !errors.Is(err, errStrayed) && !errors.Is(err, io.EOF) {
				return 0, err
			}
		}
	}
	return 0, io.EOF
}

func (s *session) Write(p []byte) (int, error) {
	s.port.wr.Lock()
	defer s.port.wr.Unlock()
	for done := 0; ; {
		if s.isOver() {
			return done, io.ErrClosedPipe
		}
		n, err := s.port.line.Write(p[done:])
		done += n
		switch {
		case errors.Is(err, errWoken):
		case errors.Is(err, ErrHungUp) && !s.isNoted():
			time.Sleep(notedEvery)
		default:
			return done, err
		}
	}
}

// Close ends the session and its running reads and writes. The host is not
// notified, since the line stays open.
func (s *session) Close() error {
	s.once.Do(func() {
		close(s.over)
		s.port.line.wakeRead()
		s.port.line.wakeWrite()
	})
	return nil
}

func (s *session) LocalAddr() net.Addr  { return portAddr{} }
func (s *session) RemoteAddr() net.Addr { return portAddr{} }

func (s *session) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (s *session) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (s *session) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type portAddr struct{}

func (portAddr) Network() string { return "port" }
func (portAddr) String() string  { return "host" }
