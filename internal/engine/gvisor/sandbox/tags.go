package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/guest/agent"
)

// tagsName is the name of the keeper's socket in the bundle.
const tagsName = "tags.sock"

const (
	maxTags     = 1 << 15 // threads of a sentry; more than maxKnown
	maxDatagram = 4 << 10 // bytes
	maxDrain    = 4 << 10 // datagrams at a time
	threadFor   = 250 * time.Millisecond
)

// tags knows for which thread of the guest each thread of the sentry works, from
// what the sentry announces (see announcer). It is an [agent.Tagger].
//
// A guest may have broken into its sentry. Then its tags are worth nothing, as
// the tags of a virtual machine, but they cost the keeper no more memory.
type tags struct {
	conn  *net.UnixConn
	raw   syscall.RawConn
	work  sync.WaitGroup
	ended chan string

	mu      sync.Mutex
	buf     [maxDatagram]byte
	oob     []byte
	said    map[thread]string       // tags
	threads map[uint32]cachedThread // by thread in the keeper's PID namespace
}

// thread is a thread of a sentry. A gofer, in a PID namespace of its own, may
// have a thread of the same number: so the process belongs to it, which the
// kernel adds to a datagram.
type thread struct {
	process int // in the keeper's PID namespace
	id      int // in the sentry's PID namespace
}

// cachedThread is what /proc said. The kernel reuses a thread's number only after all others.
type cachedThread struct {
	thread
	until time.Time
}

// newTags listens at path.
func newTags(path string) (*tags, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("listen for tags: %w", err)
	}
	t := &tags{
		conn: conn, ended: make(chan string, 1), said: map[thread]string{}, threads: map[uint32]cachedThread{},
		oob: make([]byte, unix.CmsgSpace(unix.SizeofUcred)), // no room for descriptors
	}
	if t.raw, err = conn.SyscallConn(); err == nil {
		controlErr := t.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		err = errors.Join(controlErr, err)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("listen for tags: %w", err)
	}
	t.work.Go(t.serve)
	return t, nil
}

// Close closes the socket.
func (t *tags) Close() error {
	err := t.conn.Close()
	t.work.Wait()
	return err
}

// Ended delivers "reboot" or "off" when the guest ends its machine, once.
func (t *tags) Ended() <-chan string { return t.ended }

// serve drains the socket until it is closed: a sentry that waits to announce
// something may hold up the keeper's reader of requests, and the kernel queues
// only some 10 datagrams (net.unix.max_dgram_qlen), whatever the socket's buffers.
func (t *tags) serve() {
	t.raw.Read(func(fd uintptr) bool {
		for more := true; more; {
			t.mu.Lock()
			more = t.drain(int(fd))
			t.mu.Unlock()
		}
		return false // wait
	})
}

// Of implements [agent.Tagger]. What was announced before the request was made is in the socket by now.
func (t *tags) Of(pid uint32) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw.Control(func(fd uintptr) { t.drain(int(fd)) })
	now := time.Now()
	c, ok := t.threads[pid]
	if !ok || now.After(c.until) {
		of, err := findThread(pid)
		if err != nil {
			return "" // the kernel, which is 0, or a process that has been killed
		}
		if len(t.threads) >= maxTags {
			clear(t.threads)
		}
		c = cachedThread{of, now.Add(threadFor)}
		t.threads[pid] = c
	}
	return t.said[c.thread]
}

// drain reads what waits in the socket. It reports whether there may be more. mu is held.
func (t *tags) drain(fd int) (more bool) {
	for range maxDrain {
		n, oobn, flags, _, err := unix.Recvmsg(fd, t.buf[:], t.oob, unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		if flags&unix.MSG_TRUNC == 0 {
			t.take(t.buf[:n], sender(t.oob[:oobn]))
		}
	}
	return true
}

// take takes one datagram of a process. mu is held.
func (t *tags) take(b []byte, process int) {
	if s := string(b); s == endReboot || s == endOff {
		select {
		case t.ended <- s:
		default: // it has been said
		}
		return
	}
	fields := bytes.SplitN(b, []byte{0}, 4)
	if len(fields) != 3 {
		return
	}
	id, err := strconv.Atoi(string(fields[0]))
	if err != nil || process == 0 {
		return
	}
	of := thread{process: process, id: id}
	if _, ok := t.said[of]; !ok && len(t.said) >= maxTags {
		for other := range t.said { // probably one that has ended
			delete(t.said, other)
			break
		}
	}
	t.said[of] = agent.TagOf(string(fields[1]), string(fields[2]))
}

// sender returns the process that sent a datagram, 0 if the kernel did not say.
func sender(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return 0
	}
	cred, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// findThread finds a thread by its number in the PID namespace of /proc.
func findThread(pid uint32) (of thread, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return of, err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "Tgid":
			of.process, err = strconv.Atoi(fields[0])
		case "NSpid":
			of.id, err = strconv.Atoi(fields[len(fields)-1]) // the innermost namespace
		}
		if err != nil {
			return of, fmt.Errorf("parse /proc/%d/status: %w", pid, err)
		}
	}
	return of, nil
}
