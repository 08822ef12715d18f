package mount

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
	"holt/internal/guest/fusectl"
)

// kernel simulates a guest: a FUSE mount of the real kernel whose messages are
// forwarded over a connection. Unanswered requests are kept and resent to the
// next host.
type kernel struct {
	t   testing.TB
	dir string
	dev int
	id  [16]byte
	tag func(m message) string
	// clock is the guest's clock.
	clock func() int64
	// hold is called before each notification is passed to the kernel; may be nil.
	hold func()

	mu      sync.Mutex
	pending map[uint64]message
	session net.Conn // the present one
	conn    net.Conn // welcomed
	ready   bool     // INIT was answered
	sent    int      // requests
	again   int      // of them sent once more
	answers int
	highest uint64
	moved   *sync.Cond // sent has grown
	done    chan struct{}
}

// newKernel mounts FUSE and reads its requests.
func newKernel(t testing.TB) *kernel {
	t.Helper()
	needRoot(t)
	k := &kernel{t: t, dir: t.TempDir(), pending: map[uint64]message{}, done: make(chan struct{}), tag: func(message) string { return "" }, clock: coarse}
	k.moved = sync.NewCond(&k.mu)
	rand.Read(k.id[:])
	var err error
	if k.dev, err = openMount(context.Background(), k.dir, false); err != nil {
		t.Fatal(err)
	}
	go k.read()
	t.Cleanup(k.unmount)
	return k
}

// coarse returns the clock that kernels use for file times.
func coarse() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts)
	return ts.Nano()
}

func (k *kernel) unmount() {
	mi, ok, _ := findMount(k.dir)
	if !ok {
		return
	}
	detach(k.dir)
	fusectl.Abort(mi.minor)
	<-k.done
	unix.Close(k.dev)
}

// read reads requests from the kernel and forwards them, or keeps them.
func (k *kernel) read() {
	defer close(k.done)
	buf := make([]byte, maxTransfer+64<<10)
	for {
		n, err := unix.Read(k.dev, buf)
		if err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return // ENODEV: unmounted
		}
		m := message(bytes.Clone(buf[:n]))
		k.mu.Lock()
		switch m.opcode() {
		case opForget, opBatchForget, opInterrupt:
		default:
			if m.unique() < k.highest {
				k.t.Errorf("%s: unique %d after %d", opName(m.opcode()), m.unique(), k.highest)
			}
			k.highest = m.unique()
			k.pending[m.unique()] = m
		}
		k.send(m)
		k.mu.Unlock()
	}
}

// send writes a request to the host, if there is one.
func (k *kernel) send(m message) {
	if k.conn == nil {
		return
	}
	k.sent++
	k.moved.Broadcast()
	b := append(channel.RequestHeader(nil, k.clock(), k.tag(m), len(m)), m...)
	if _, err := k.conn.Write(b); err != nil {
		k.conn = nil // whoever reads from it finds that out too
	}
}

// attach serves one session of a host over conn, until it ends.
func (k *kernel) attach(conn net.Conn) error {
	defer conn.Close()
	k.mu.Lock()
	hello := channel.Hello{Mount: k.id, Version: channel.FrameVersion, Fresh: !k.ready}
	k.mu.Unlock()
	if err := channel.NewFrameWriter(conn).Write(channel.FrameHello, hello.Append(nil)); err != nil {
		return err
	}
	frames := channel.NewFrameReader(conn)
	kind, payload, err := frames.Next(nil)
	if err != nil {
		return err
	}
	if id, err := channel.ParseWelcome(payload); kind != channel.FrameWelcome || err != nil || id != k.id {
		return fmt.Errorf("not welcome: %d %x %v", kind, id, err)
	}
	k.mu.Lock()
	k.session = conn
	k.mu.Unlock()
	go k.resend(conn) // the host may be unable to read while nobody here does
	defer k.detach(conn)
	// As in the agent: a notification may have to wait for a page's writeback, and
	// so for a later answer.
	notices := make(chan []byte, channel.MaxNotices)
	defer close(notices)
	go k.notify(conn, notices)
	var buf []byte
	for {
		kind, payload, err := frames.Next(buf)
		if err != nil {
			return err
		}
		buf = payload[:0]
		switch kind {
		case channel.FrameReply:
			if err := k.reply(conn, payload); err != nil {
				return err
			}
		case channel.FrameNotify:
			select {
			case notices <- bytes.Clone(payload):
			default:
				return fmt.Errorf("more than %d notices on their way", channel.MaxNotices)
			}
		default:
			return fmt.Errorf("a frame of kind %d", kind)
		}
	}
}

// notify passes notifications to the kernel until the end of their session.
func (k *kernel) notify(conn net.Conn, notices <-chan []byte) {
	taken := uint32(0)
	for b := range notices {
		if k.hold != nil {
			k.hold()
		}
		if !k.serves(conn) {
			return
		}
		if _, err := unix.Write(k.dev, b); err != nil && err != unix.ENOENT && err != unix.ENODEV && err != unix.ENOTCONN {
			k.t.Errorf("notification: %v", err)
		}
		if taken++; len(notices) == 0 || taken == channel.MaxNotices/4 {
			frame := append(binary.LittleEndian.AppendUint32(nil, 5), byte(channel.FrameTaken))
			k.mu.Lock()
			conn.Write(binary.LittleEndian.AppendUint32(frame, taken))
			k.mu.Unlock()
			taken = 0
		}
	}
}

func (k *kernel) serves(conn net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session == conn
}

func (k *kernel) detach(conn net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
	if k.conn == conn {
		k.conn = nil
	}
}

// resend sends unanswered requests, oldest first, and enables new ones.
func (k *kernel) resend(conn net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn = conn
	var list []message
	for _, m := range k.pending {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b message) int { return cmp.Compare(a.unique(), b.unique()) })
	for _, m := range list {
		k.again++
		k.send(m)
	}
}

// reply passes an answer to the kernel, and acknowledges answers occasionally.
func (k *kernel) reply(conn net.Conn, b []byte) error {
	unique := binary.LittleEndian.Uint64(b[8:])
	k.mu.Lock()
	m := k.pending[unique]
	delete(k.pending, unique)
	k.answers++
	ack := k.answers%16 == 0 && k.conn == conn
	lowest := k.highest + 1
	for u := range k.pending {
		lowest = min(lowest, u)
	}
	k.mu.Unlock()
	if m == nil {
		return nil // the second answer to what was sent twice
	}
	if _, err := unix.Write(k.dev, b); err != nil && err != unix.ENOENT {
		return fmt.Errorf("answer to %s (%d bytes): %w", opName(m.opcode()), len(b), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.opcode() == opInit {
		k.ready = true
	}
	if ack && k.conn == conn {
		frame := append(binary.LittleEndian.AppendUint32(nil, 9), byte(channel.FrameAck))
		k.conn.Write(binary.LittleEndian.AppendUint64(frame, lowest))
	}
	return nil
}

// counts returns the numbers of requests and of resent ones.
func (k *kernel) counts() (sent, again int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sent, k.again
}

// waitSent returns when n more requests were sent, or over is set.
func (k *kernel) waitSent(n int, over *atomic.Bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for goal := k.sent + n; k.sent < goal && !over.Load(); {
		k.moved.Wait()
	}
}

// socketPair returns two ends of a stream, like a guest's port.
func socketPair(t testing.TB) (host, guest *net.UnixConn) {
	t.Helper()
	h, g, err := socketFiles()
	if err != nil {
		t.Fatal(err)
	}
	return fileConn(t, h), fileConn(t, g)
}

func socketFiles() (a, b *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "guest"), nil
}

func fileConn(t testing.TB, f *os.File) *net.UnixConn {
	t.Helper()
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// ended reports whether an error only means that the other side is gone.
func ended(err error) bool {
	var op *net.OpError
	return err == nil || errors.As(err, &op) || errors.Is(err, net.ErrClosed) || err.Error() == "EOF" || err.Error() == "unexpected EOF"
}
