package channel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// patience is the timeout of waits; tests do not assert durations.
const patience = 5 * time.Minute

// wire is a Line whose bytes outlive its hosts, like a virtio-serial port's:
// hosts attach one after the other, and a guest may miss the change.
type wire struct {
	mu     sync.Mutex
	cond   *sync.Cond
	in     []byte // host to guest
	out    []byte // guest to host
	most   int    // bytes of out that fit
	hangup bool   // the guest is to be told EOF
	woken  [2]bool
	closed bool
	detach func() // ends the host that is attached
}

func newWire() *wire {
	w := &wire{most: 256 << 10}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.closed:
			return 0, net.ErrClosed
		case w.woken[0]:
			w.woken[0] = false
			return 0, errWoken
		case len(w.in) > 0:
			n := copy(p[:min(len(p), 4096)], w.in) // as one virtio buffer
			w.in = w.in[n:]
			w.cond.Broadcast()
			return n, nil
		case w.hangup:
			w.hangup = false
			return 0, io.EOF
		}
		w.cond.Wait()
	}
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(p) {
		switch {
		case w.closed:
			return n, net.ErrClosed
		case w.woken[1]:
			w.woken[1] = false
			return n, errWoken
		case len(w.out) < w.most:
			k := min(len(p)-n, w.most-len(w.out))
			w.out = append(w.out, p[n:n+k]...)
			n += k
			w.cond.Broadcast()
			continue
		}
		w.cond.Wait()
	}
	return n, nil
}

func (w *wire) wake(i int) {
	w.mu.Lock()
	w.woken[i] = true
	w.mu.Unlock()
	w.cond.Broadcast()
}

func (w *wire) wakeRead()  { w.wake(0) }
func (w *wire) wakeWrite() { w.wake(1) }

func (w *wire) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cond.Broadcast()
	return nil
}

// host attaches a host in place of the previous one. Closing the returned
// connection loses what it has not passed on. Bytes of different hosts are
// never interleaved.
func (w *wire) host(t *testing.T) net.Conn {
	if w.detach != nil {
		w.detach()
	}
	near, far := net.Pipe()
	var gone bool // guarded by w.mu
	var passing sync.WaitGroup
	w.detach = func() {
		near.Close()
		w.mu.Lock()
		gone = true
		w.mu.Unlock()
		w.cond.Broadcast()
		passing.Wait()
	}
	t.Cleanup(func() { near.Close() })
	w.mu.Lock()
	w.hangup = false // as on a virtio port: a read asks whether a host is there now
	w.mu.Unlock()
	passing.Go(func() { // host to guest
		buf := make([]byte, 4096)
		for {
			n, err := far.Read(buf)
			w.mu.Lock()
			for len(w.in) > 64<<10 && !w.closed && !gone {
				w.cond.Wait()
			}
			over := err != nil || gone
			if !gone {
				w.in = append(w.in, buf[:n]...)
			}
			w.mu.Unlock()
			w.cond.Broadcast()
			if over {
				return
			}
		}
	})
	passing.Go(func() { // guest to host
		for {
			w.mu.Lock()
			for len(w.out) == 0 && !w.closed && !gone {
				w.cond.Wait()
			}
			b := bytes.Clone(w.out)
			over := w.closed || gone
			w.mu.Unlock()
			n, err := far.Write(b)
			w.mu.Lock()
			w.out = w.out[min(n, len(w.out)):]
			w.mu.Unlock()
			w.cond.Broadcast()
			if err != nil || over {
				return
			}
		}
	})
	return near
}

func dial(t *testing.T, conn net.Conn) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := Dial(ctx, conn)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echoes serves a port until it is closed, and echoes each session's bytes.
func echoes(t *testing.T, p *Port) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			s, err := p.Accept()
			if err != nil {
				return
			}
			go func() {
				defer s.Close()
				io.Copy(s, s)
			}()
		}
	}()
	t.Cleanup(func() { p.Close(); <-done })
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func roundTrip(t *testing.T, c net.Conn, data []byte) {
	t.Helper()
	go c.Write(data)
	got := make([]byte, len(data))
	c.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.ReadFull(c, got); err != nil {
		t.Fatalf("read echo: %v after %d of %d bytes", err, n, len(data))
	}
	if !bytes.Equal(got, data) {
		t.Fatal("echo differs from what was sent")
	}
}

func socket(t *testing.T) (*Socket, func() net.Conn) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func TestSocketSessions(t *testing.T) {
	s, connect := socket(t)
	echoes(t, NewPort(s))
	for _, size := range []int{1, 4095, maxPacket, maxPacket + 1, 3 << 20} {
		c := dial(t, connect())
		roundTrip(t, c, random(size))
		roundTrip(t, c, []byte("again"))
		c.Close()
	}
}

func TestDeviceSessions(t *testing.T) {
	// A socket pair replaces the port: the same system calls, but the host cannot reconnect.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDevice(fds[0], "pair")
	if err != nil {
		t.Fatal(err)
	}
	far, err := newDevice(fds[1], "pair")
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, NewPort(d))
	roundTrip(t, dial(t, deviceConn{far}), random(1<<20))
}

type deviceConn struct{ *Device }

func (deviceConn) LocalAddr() net.Addr                { return portAddr{} }
func (deviceConn) RemoteAddr() net.Addr               { return portAddr{} }
func (deviceConn) SetDeadline(time.Time) error        { return nil }
func (deviceConn) SetReadDeadline(time.Time) error    { return nil }
func (c deviceConn) SetWriteDeadline(time.Time) error { return nil }

// pipe returns a guest's end of a pair of named pipes, and the host's, which each host opens anew.
func pipe(t *testing.T) (*Pipe, func() pipeConn) {
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, name := range []string{"in", "out"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := NewPipe(open("in"), open("out"))
	if err != nil {
		t.Fatal(err)
	}
	return p, func() pipeConn { return pipeConn{from: open("out"), to: open("in")} }
}

// pipeConn is the host's end of a [Pipe].
type pipeConn struct{ from, to *os.File }

func (c pipeConn) Read(p []byte) (int, error)  { return c.from.Read(p) }
func (c pipeConn) Write(p []byte) (int, error) { return c.to.Write(p) }
func (c pipeConn) Close() error                { return errors.Join(c.from.Close(), c.to.Close()) }
func (pipeConn) LocalAddr() net.Addr           { return portAddr{} }
func (pipeConn) RemoteAddr() net.Addr          { return portAddr{} }
func (c pipeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.from.SetDeadline(t), c.to.SetDeadline(t))
}
func (c pipeConn) SetReadDeadline(t time.Time) error  { return c.from.SetReadDeadline(t) }
func (c pipeConn) SetWriteDeadline(t time.Time) error { return c.to.SetWriteDeadline(t) }

func TestPipeSessions(t *testing.T) {
	p, connect := pipe(t)
	echoes(t, NewPort(p))
	for _, size := range []int{1, 4095, maxPacket, maxPacket + 1, 3 << 20} {
		c := dial(t, connect()) // the guest does not learn that the earlier host has gone
		roundTrip(t, c, random(size))
		// This host dies in the middle of a packet; its bytes stay.
		c.(*hostConn).Conn.Write(appendPacket(nil, random(size))[:packetHeader+1])
		c.Close()
	}
}

// A host that leaves a pipe can end its session, wherever a packet was cut off.
func TestPipeHostLeaves(t *testing.T) {
	p, connect := pipe(t)
	port := NewPort(p)
	defer port.Close()
	for cut := range packetHeader + 2 {
		ended := make(chan error, 1)
		go func() {
			s, err := port.Accept()
			if err == nil {
				_, err = io.Copy(io.Discard, s)
			}
			ended <- err
		}()
		c := dial(t, connect()).(*hostConn)
		c.Conn.Write(appendPacket(nil, random(maxPacket))[:cut])
		c.Conn.Write(make([]byte, zeroCount))
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("cut off after %d bytes: %v", cut, err)
			}
		case <-time.After(patience):
			t.Fatalf("cut off after %d bytes: the session has not ended", cut)
		}
		c.Close()
	}
	echoes(t, port)
	roundTrip(t, dial(t, connect()), random(1000))
}

func appendPacket(b, payload []byte) []byte {
	for _, part := range packets([][]byte{payload}) {
		b = append(b, part...)
	}
	return b
}

func TestStaleBytes(t *testing.T) {
	w := newWire()
	p := NewPort(w)
	echoes(t, p)
	data := random(300 << 10)
	for i := range 12 {
		host := w.host(t)
		c := dial(t, host)
		roundTrip(t, c, data[:1+i*1000])
		// The host dies while it sends and receives; its bytes stay.
		go c.Write(data)
		io.ReadFull(c, make([]byte, i*7000))
		c.Close()
		if i%3 == 0 { // sometimes the guest sees it
			w.mu.Lock()
			w.hangup = true
			w.mu.Unlock()
			w.cond.Broadcast()
		}
	}
}

// A file may contain a recorded preamble; reading it must not end the session.
func TestPreambleAsContent(t *testing.T) {
	s, connect := socket(t)
	echoes(t, NewPort(s))
	c := dial(t, connect())
	data := append(random(100), newNonce().preamble()...)
	roundTrip(t, c, append(data, data...))
}

func TestHostOpensEarly(t *testing.T) {
	s, connect := socket(t)
	c := connect()
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { c, err := Dial(ctx, c); dialled <- result{c, err} }()
	echoes(t, NewPort(s))
	r := <-dialled
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.conn.Close()
	roundTrip(t, r.conn, random(1000))
}

// Preambles repeated while the guest boots begin sessions that the host has
// abandoned; the last one counts.
func TestRepeatedPreambles(t *testing.T) {
	w := newWire()
	w.in = append(random(5000), newNonce().preamble()...)
	w.in = append(w.in, newNonce().preamble()...)
	echoes(t, NewPort(w))
	roundTrip(t, dial(t, w.host(t)), random(1000))
}

// unnoted is a line that reports a host later than its bytes.
type unnoted struct {
	*wire
	left int // writes until then
}

func (u *unnoted) Write(p []byte) (int, error) {
	if u.left--; u.left >= 0 {
		return 0, ErrHungUp
	}
	return u.wire.Write(p)
}

// A preamble that arrives before the kernel has registered its host is answered
// without waiting for the next one.
func TestAnswerBeforeHostIsRegistered(t *testing.T) {
	u, n := &unnoted{newWire(), 5}, newNonce()
	u.in = n.preamble()
	defer time.AfterFunc(patience, func() { u.Close() }).Stop()
	s, err := NewPort(u).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !bytes.Equal(u.out, n.echo()) {
		t.Errorf("answered %x, not %x", u.out, n.echo())
	}
}

// A restored machine reads bytes of its new host before the kernel reports that
// the earlier host is gone: this ends neither reads nor writes.
func TestLateEndOfFormerHost(t *testing.T) {
	u := &unnoted{newWire(), 0}
	u.in = newNonce().preamble()
	defer time.AfterFunc(patience, func() { u.Close() }).Stop()
	conn, err := NewPort(u).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*session).noted = time.Now().Add(patience)
	u.mu.Lock()
	u.left, u.hangup = 5, true
	u.mu.Unlock()
	time.AfterFunc(10*time.Millisecond, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, b := range packets([][]byte{[]byte("welcome")}) {
			u.in = append(u.in, b...)
		}
		u.cond.Broadcast()
	})
	got := make([]byte, len("welcome"))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != "welcome" {
		t.Errorf("read %q: %v", got[:n], err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil || !bytes.HasSuffix(u.out, []byte("hello")) {
		t.Errorf("wrote: %v", err)
	}
}

func TestNewSessionFreesBlockedWriter(t *testing.T) {
	w := newWire()
	p := NewPort(w)
	defer p.Close()
	wrote := make(chan error, 1)
	first := w.host(t)
	go func() {
		s, err := p.Accept()
		if err != nil {
			wrote <- err
			return
		}
		go io.Copy(io.Discard, s)
		_, err = s.Write(make([]byte, 8<<20)) // nobody reads that much
		wrote <- err
		if s, err = p.Accept(); err == nil {
			io.Copy(s, s)
		}
	}()
	dial(t, first)
	first.Close()
	// A new host, whose preamble alone ends the old session.
	roundTrip(t, dial(t, w.host(t)), []byte("fresh"))
	if err := <-wrote; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("blocked write ended with %v, want %v", err, io.ErrClosedPipe)
	}
}

// An agent is killed while it sends a frame; its successor ends the session for the host.
func TestHangUp(t *testing.T) {
	w := newWire()
	p := NewPort(w)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		if s, err := p.Accept(); err == nil {
			s.Write(appendHeader(nil, FrameRequest, MaxFrame)) // and no more
		}
	}()
	c := dial(t, w.host(t))
	<-killed
	heir := NewPort(w)
	go heir.HangUp()
	r := NewFrameReader(c)
	if _, _, err := r.Next(nil); err != nil {
		t.Errorf("the frame that was being sent: %v", err)
	}
	if _, _, err := r.Next(nil); holt.CodeOf(err) != holt.Corrupt {
		t.Errorf("next frame: %v, want code %s", err, holt.Corrupt)
	}
	c.Close()
	echoes(t, heir)
	roundTrip(t, dial(t, w.host(t)), random(1000))
}

func TestGuestClosesSession(t *testing.T) {
	w := newWire()
	p := NewPort(w)
	defer p.Close()
	go func() {
		s, err := p.Accept()
		if err != nil {
			return
		}
		time.AfterFunc(0, func() { s.Close() }) // while it reads
		io.Copy(io.Discard, s)
		if next, err := p.Accept(); err == nil {
			io.Copy(next, next)
		}
	}()
	dial(t, w.host(t)).Write(random(100))
	roundTrip(t, dial(t, w.host(t)), []byte("fresh"))
}

func TestPortClose(t *testing.T) {
	s, connect := socket(t)
	p := NewPort(s)
	read := make(chan error)
	go func() {
		s, err := p.Accept()
		if err == nil {
			_, err = s.Read(make([]byte, 1))
		}
		read <- err
	}()
	dial(t, connect())
	p.Close()
	if err := <-read; err == nil {
		t.Error("read from a closed port returned no error")
	}
	if _, err := p.Accept(); err == nil {
		t.Error("accept on a closed port returned no error")
	}
}

func TestDialErrors(t *testing.T) {
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, near); holt.CodeOf(err) != holt.Timeout {
		t.Errorf("dial with an ended context: %v, want code %s", err, holt.Timeout)
	}
	far.Close()
	near, far = net.Pipe()
	far.Close()
	if _, err := Dial(t.Context(), near); holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("dial on a closed line: %v, want code %s", err, holt.Unavailable)
	}
}

// FuzzInbound puts arbitrary bytes before a preamble, as from any place of an
// old session: the session must be found and complete.
func FuzzInbound(f *testing.F) {
	f.Add([]byte(nil), false)
	f.Add([]byte("\x01\x00\x10\x00cut off"), false)
	f.Add([]byte("\x01\xff\xff\xff"), false)
	f.Add(newNonce().preamble()[10:], true)
	f.Add(append(newNonce().preamble(), "\x01\x00\x00\x05hello\x01"...), true)
	f.Add(append(make([]byte, minZeros), newNonce().echo()[:20]...), true)
	f.Fuzz(func(t *testing.T, before []byte, scanning bool) {
		want := newNonce()
		stream := append(bytes.Clone(before), want.preamble()...)
		out := packets([][]byte{[]byte("hello")})
		for _, b := range out {
			stream = append(stream, b...)
		}
		in := &inbound{r: bytes.NewReader(stream), scanning: scanning}
		for {
			n, err := in.find()
			if err != nil {
				t.Fatalf("session not found: %v", err)
			}
			if n == want {
				break
			}
		}
		got := make([]byte, 5)
		if _, err := in.read(got); err != nil || string(got) != "hello" {
			t.Fatalf("read %q, %v", got, err)
		}
		if _, err := in.read(got); err != io.EOF {
			t.Fatalf("read after the end: %v", err)
		}
	})
}

// FuzzDial gives the host arbitrary bytes of a guest.
func FuzzDial(f *testing.F) {
	f.Add([]byte("garbage"))
	f.Add(newNonce().echo())
	f.Fuzz(func(t *testing.T, b []byte) {
		d := dialer{conn: readOnly{Reader: bytes.NewReader(append(b, "rest"...))}, stop: make(chan struct{})}
		d.latest, d.sent = nonce{1}, true
		rest, err := d.await()
		if bytes.Contains(b, d.latest.echo()) != (err == nil) {
			t.Fatalf("await: %v", err)
		}
		if err == nil && !bytes.HasSuffix(b, rest) && !bytes.HasSuffix(append(b, "rest"...), rest) {
			t.Fatalf("rest %q", rest)
		}
	})
}

type readOnly struct {
	net.Conn
	io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.Reader.Read(p) }
