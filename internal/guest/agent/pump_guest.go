package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
)

// Sizes of the pump's buffers. A request is copied from the buffer it was read
// into to the smallest that holds it, unless that is the same: a large write
// is never copied.
const (
	bufSmall = 4 << 10
	bufMid   = 144 << 10 // a write of 128 KiB
	bufLarge = channel.RequestHeaderSize + fuseMaxWrite + 64<<10
	bufKeep  = 8 // free ones of a size
)

// buffers keeps free buffers. The pump's mu guards it.
type buffers struct{ free [3][][]byte }

func sizeClass(n int) (class, size int) {
	switch {
	case n <= bufSmall:
		return 0, bufSmall
	case n <= bufMid:
		return 1, bufMid
	}
	return 2, bufLarge
}

func (b *buffers) get(n int) []byte {
	class, size := sizeClass(n)
	if k := len(b.free[class]); k > 0 {
		buf := b.free[class][k-1]
		b.free[class] = b.free[class][:k-1]
		return buf
	}
	return make([]byte, size)
}

func (b *buffers) put(buf []byte) {
	class, _ := sizeClass(cap(buf))
	if len(b.free[class]) < bufKeep {
		b.free[class] = append(b.free[class], buf[:cap(buf)])
	}
}

// read reads requests from the kernel and sends them on, until the mount is
// over. It is the only reader of its device: numbers are given in this order.
func (p *pump) read(m *fuseMount) error {
	p.mu.Lock()
	buf := p.bufs.get(bufLarge)
	p.mu.Unlock()
	for p.waitRoom(m) {
		n, err := m.dev.Read(buf[channel.RequestHeaderSize:])
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // a request was interrupted before it was read
		case err != nil:
			return err
		}
		message := buf[channel.RequestHeaderSize : channel.RequestHeaderSize+n]
		head, ok := parseIn(message)
		if !ok {
			return fmt.Errorf("kernel's request of %d bytes is malformed", n)
		}
		var now int64
		tag := ""
		if changes(head.opcode) {
			now, tag = fileTime(), p.tags.of(head.pid)
		}
		e := &pending{unique: head.unique, opcode: head.opcode, size: n}
		p.mu.Lock()
		buf = p.adopt(e, buf, n, now, tag)
		p.mu.Unlock()
		p.pass(m, e)
	}
	return net.ErrClosed
}

// waitRoom waits until another request may be read. It returns false when the
// mount is over.
func (p *pump) waitRoom(m *fuseMount) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mount == m && (len(p.pending) >= maxPending || p.bytes >= maxPendingBytes) {
		p.room.Wait()
	}
	return p.mount == m
}

// adopt makes e's frame of the n bytes read into buf and returns the buffer to
// read the next one into. It is called with mu held.
func (p *pump) adopt(e *pending, buf []byte, n int, now int64, tag string) []byte {
	var room [channel.RequestHeaderSize]byte
	header := channel.RequestHeader(room[:0], now, tag, n)
	start := channel.RequestHeaderSize - len(header)
	copy(buf[start:], header)
	frame := buf[start : channel.RequestHeaderSize+n]
	if class, _ := sizeClass(len(frame)); class < 2 {
		e.buf = p.bufs.get(len(frame))
		e.frame = e.buf[:copy(e.buf, frame)]
	} else {
		e.buf, e.frame = buf, frame
		buf = p.bufs.get(bufLarge)
	}
	p.bytes += cap(e.buf)
	return buf
}

// pass numbers a request, remembers it and, if a host is there, sends it.
func (p *pump) pass(m *fuseMount, e *pending) {
	p.send.Lock()
	defer p.send.Unlock()
	p.mu.Lock()
	host := p.host
	keep, forward := p.enroll(m, e)
	e.busy, e.done = host != nil && forward, !keep
	var ack []byte
	if e.busy && p.answers >= ackEvery {
		p.answers = 0
		ack = p.ack()
	}
	frame := e.frame
	busy := e.busy
	p.release(e)
	p.mu.Unlock()
	if !busy {
		return
	}
	host.Write(frame) // if it fails, the session's reader learns it too
	p.settle(e)
	if ack != nil {
		host.Write(ack)
	}
}

// enroll gives e its number, keeps it if it is to be sent again to the next
// host, and says whether it is to be sent now. It is called with mu held.
func (p *pump) enroll(m *fuseMount, e *pending) (keep, forward bool) {
	if p.mount != m {
		return false, false
	}
	message := e.frame[len(e.frame)-e.size:]
	e.number = p.next
	p.next++
	binary.NativeEndian.PutUint64(message[8:], e.number)
	switch e.opcode {
	case opcodeInterrupt:
		return false, p.aimInterrupt(message)
	case opcodeForget, opcodeBatchForget:
		keep = p.host == nil // not answered, yet not to be lost
	default:
		keep = true
	}
	if keep {
		p.pending[e.number] = e
	}
	return keep, true
}

// aimInterrupt puts the number of the request that is to be interrupted in
// place of the kernel's unique; false if it is no longer pending.
func (p *pump) aimInterrupt(message []byte) bool {
	if len(message) < fuseInHeader+8 {
		return false
	}
	unique := binary.NativeEndian.Uint64(message[fuseInHeader:])
	for n, e := range p.pending {
		if e.unique == unique {
			binary.NativeEndian.PutUint64(message[fuseInHeader:], n)
			return true
		}
	}
	return false
}

// ack returns a frame with the watermark: all requests below it are answered.
// It is called with mu held.
func (p *pump) ack() []byte {
	lowest := p.next
	for n := range p.pending {
		lowest = min(lowest, n)
	}
	b := binary.LittleEndian.AppendUint32(nil, 1+8)
	b = append(b, byte(channel.FrameAck))
	return binary.LittleEndian.AppendUint64(b, lowest)
}
