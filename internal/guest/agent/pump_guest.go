package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
)

// Sizes of the pump's buffers. A request is copied from its read buffer to the
// smallest one that fits, unless that has the same size: a large write is never
// copied.
const (
	bufSmall = 4 << 10
	bufMid   = 144 << 10 // a write of 128 KiB
	bufLarge = channel.RequestHeaderSize + fuseMaxWrite + 64<<10
	bufKeep  = 8 // free ones of a size
)

// buffers is a pool of buffers. The pump's mu guards it.
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

// read reads requests from the kernel and sends them to the host, until the
// mount ends. It is the only reader of its device: numbers are assigned in the
// order of reading.
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
			return fmt.Errorf("malformed request of %d bytes from the kernel", n)
		}
		var now int64
		tag := ""
		if changes(head.opcode) {
			now, tag = fileTime(), p.tags.Of(head.pid)
		}
		e := &pending{unique: head.unique, opcode: head.opcode, size: n}
		p.mu.Lock()
		buf = p.adopt(e, buf, n, now, tag)
		p.mu.Unlock()
		p.pass(m, e)
	}
	return net.ErrClosed
}

// waitRoom waits until another request may be read. It returns false when the mount has ended.
func (p *pump) waitRoom(m *fuseMount) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mount == m && (len(p.pending) >= maxPending || p.bytes >= maxPendingBytes) {
		p.room.Wait()
	}
	return p.mount == m
}

// adopt makes e's frame from the n bytes read into buf, and returns the buffer
// for the next read. mu is held.
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

// pass numbers a request, stores it and, if a host is connected, sends it.
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
	host.Write(frame) // if it fails, the session's reader fails too
	p.settle(e)
	if ack != nil {
		host.Write(ack)
	}
}

// enroll assigns e its number, stores it if it may have to be resent, and
// reports whether to send it now. mu is held.
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
		keep = p.host == nil // without a host, keep it although it has no answer
	default:
		keep = true
	}
	if keep {
		p.pending[e.number] = e
	}
	return keep, true
}

// aimInterrupt replaces the kernel's unique of the request to interrupt by its
// number; false if that request is not pending any more.
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

// ack returns a frame with the watermark: all requests below it are answered. mu is held.
func (p *pump) ack() []byte {
	lowest := p.next
	for n := range p.pending {
		lowest = min(lowest, n)
	}
	b := binary.LittleEndian.AppendUint32(nil, 1+8)
	b = append(b, byte(channel.FrameAck))
	return binary.LittleEndian.AppendUint64(b, lowest)
}
