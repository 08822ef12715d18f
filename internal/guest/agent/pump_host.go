package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/channel"
)

const maxNotice = 4 << 10 // bytes of a notification, which has at most one name

// session serves one host: it sends hello, resends pending requests after the
// welcome, and passes the host's replies to the kernel. It never waits for the
// kernel to accept a notification, which may need a later reply: notifications
// are queued, up to the allowed number in flight. If the workspace is
// remounted, hello is sent again in the same session: a guest cannot hang up a
// port.
func (p *pump) session(ctx context.Context, conn net.Conn, work *sync.WaitGroup) error {
	defer conn.Close()
	p.mu.Lock()
	p.conn = conn
	p.note()
	p.mu.Unlock()
	defer p.leave(conn)
	notices := make(chan []byte, channel.MaxNotices)
	defer close(notices)
	work.Go(func() { p.notify(conn, notices) })
	p.greet()
	frames := channel.NewFrameReader(conn)
	buf := make([]byte, channel.MaxFrame)
	for {
		kind, payload, err := frames.Next(buf)
		if err != nil {
			return err
		}
		switch kind {
		case channel.FrameReply:
			err = p.reply(payload)
		case channel.FrameNotify:
			if len(payload) > maxNotice {
				return holt.Errorf(holt.Corrupt, "invalid notification of %d bytes", len(payload))
			}
			select {
			case notices <- slices.Clone(payload):
			default:
				return holt.Errorf(holt.Corrupt, "host sent more than %d notifications without acknowledgement", channel.MaxNotices)
			}
		case channel.FrameWelcome:
			err = p.welcome(ctx, conn, payload, work)
		default:
			err = holt.Errorf(holt.Corrupt, "host sent an unexpected frame of kind %d", kind)
		}
		if err != nil {
			return err
		}
	}
}

// greet sends hello for the current mount to the current session, if both exist
// and it has not been sent.
func (p *pump) greet() {
	p.send.Lock()
	defer p.send.Unlock()
	p.mu.Lock()
	conn, m := p.conn, p.mount
	if conn == nil || m == nil || m.greeted == conn {
		p.mu.Unlock()
		return
	}
	m.greeted = conn
	p.host = nil // until the host welcomes this mount
	p.note()
	hello := channel.Hello{Mount: m.id, Version: channel.FrameVersion, Fresh: !m.ready}
	p.mu.Unlock()
	// If it fails, the session's reader fails too.
	channel.NewFrameWriter(conn).Write(channel.FrameHello, hello.Append(nil))
}

func (p *pump) current() *fuseMount {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mount
}

// leave removes a session that has ended.
func (p *pump) leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = nil
	if p.host == conn {
		p.host = nil
	}
	p.note()
}

// welcome handles the host's answer to hello. If it names another mount, the
// host cannot continue this one: the workspace is remounted.
func (p *pump) welcome(ctx context.Context, conn net.Conn, payload []byte, work *sync.WaitGroup) error {
	accepted, err := channel.ParseWelcome(payload)
	if err != nil {
		return err
	}
	m := p.current()
	if m == nil {
		return nil // hello will be sent again
	}
	if accepted != m.id {
		p.log.Warn("host does not know this mount; remounting the workspace")
		work.Go(func() { p.remount(ctx, work, m) })
		return nil
	}
	// In a goroutine: the host may not read until we do.
	work.Go(func() { p.resend(m, conn) })
	return nil
}

// resend sends all pending requests, oldest first, and then enables new ones.
func (p *pump) resend(m *fuseMount, conn net.Conn) {
	p.send.Lock()
	defer p.send.Unlock()
	p.mu.Lock()
	if p.conn != conn || p.mount != m || p.host == conn {
		p.mu.Unlock()
		return
	}
	list := make([]*pending, 0, len(p.pending))
	for _, e := range p.pending {
		e.busy = true
		list = append(list, e)
	}
	ack := p.ack()
	p.mu.Unlock()
	slices.SortFunc(list, func(a, b *pending) int { return int(int64(a.number) - int64(b.number)) })
	_, err := conn.Write(ack)
	for _, e := range list {
		if err == nil {
			_, err = conn.Write(e.frame)
		}
		p.mu.Lock()
		if err == nil && (e.opcode == opcodeForget || e.opcode == opcodeBatchForget) {
			e.done = true
			delete(p.pending, e.number)
		}
		p.mu.Unlock()
		p.settle(e)
	}
	p.mu.Lock()
	if err == nil && p.conn == conn && p.mount == m {
		p.host = conn
		p.note()
	}
	p.mu.Unlock()
}

// reply passes a host's reply to the kernel. A reply without a pending request
// (the second answer to a resent request) is dropped.
func (p *pump) reply(b []byte) error {
	if len(b) < fuseOutHeader || int(binary.NativeEndian.Uint32(b)) != len(b) {
		return holt.Errorf(holt.Corrupt, "malformed reply of %d bytes", len(b))
	}
	p.mu.Lock()
	e := p.pending[binary.NativeEndian.Uint64(b[8:])]
	m := p.mount
	p.mu.Unlock()
	if e == nil || m == nil {
		return nil
	}
	binary.NativeEndian.PutUint64(b[8:], e.unique)
	err := m.dev.Reply(b)
	if errors.Is(err, unix.EINVAL) {
		// The kernel rejects the reply; without another one its process would wait for ever.
		p.log.Error("invalid reply from host", "opcode", e.opcode, "bytes", len(b))
		err = m.dev.Reply(errorReply(e.unique, unix.EIO))
	}
	if err == nil && e.opcode == opcodeInit {
		p.begun(m)
	}
	p.mu.Lock()
	if !e.done {
		e.done = true
		delete(p.pending, e.number)
		p.answers++
		p.release(e)
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: the request was interrupted
		p.log.Debug("write reply", "opcode", e.opcode, "err", err) // the mount is ending
	}
	return nil
}

// begun records that INIT has been answered.
func (p *pump) begun(m *fuseMount) {
	p.mu.Lock()
	m.ready = true
	p.note()
	p.mu.Unlock()
	if err := readAhead(p.dir); err != nil {
		p.log.Warn("cannot increase read-ahead", "err", err)
	}
}

// notify passes a session's notifications to the kernel, and acknowledges them
// to the host. It has its own goroutine: the kernel may block on a lock that a
// process holds until its own request is answered. Notifications left at the
// end of the session are sent again in the next.
func (p *pump) notify(conn net.Conn, notices <-chan []byte) {
	taken := 0
	for b := range notices {
		m, over := p.at(conn)
		if over {
			return
		}
		if m != nil && len(b) > 0 {
			err := m.dev.Notify(b)
			if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: the kernel does not have that inode
				p.log.Warn("invalid notification from host", "err", err)
			}
		}
		if taken++; len(notices) == 0 || taken == channel.MaxNotices/4 {
			p.taken(conn, taken)
			taken = 0
		}
	}
}

// at returns the current mount, and whether a session has ended.
func (p *pump) at(conn net.Conn) (m *fuseMount, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mount, p.conn != conn
}

// taken acknowledges n notifications to the host.
func (p *pump) taken(conn net.Conn, n int) {
	p.send.Lock()
	defer p.send.Unlock()
	// If it fails, the session's reader fails too.
	channel.NewFrameWriter(conn).Write(channel.FrameTaken, binary.LittleEndian.AppendUint32(nil, uint32(n)))
}
