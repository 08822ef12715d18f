package netstack

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// line is the stack's end of the link. The goroutine that makes a frame writes it, if the socket has room, since waking
// another goroutine would take longer. Otherwise the frame waits in a queue, and later frames behind it.
type line struct {
	*channel.Endpoint // the queue

	mu     sync.Mutex // never held while waiting
	out    syscall.RawConn
	behind int // frames that are queued or being sent by [line.send]; none may overtake them
	frame  []byte
	sent   bool // frame was sent
}

func newLine(mac tcpip.LinkAddress) *line {
	l := &line{Endpoint: channel.New(sendQueue, maxFrame, mac), frame: make([]byte, 0, 4+maxFrame)}
	// A socket does not corrupt frames.
	l.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	return l
}

// attach sends further frames to a connection. It drops frames that are queued for the former one.
func (l *line) attach(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Drain()
	l.behind, l.out = 0, nil
	if sc, ok := conn.(syscall.Conn); ok && conn.LocalAddr().Network() == "unixpacket" { // a stream could take a part of a frame
		l.out, _ = sc.SyscallConn()
	}
}

func (l *line) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}

// WritePackets implements stack.LinkEndpoint.
func (l *line) WritePackets(pkts stack.PacketBufferList) (n int, _ tcpip.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pkt := range pkts.AsSlice() {
		if l.behind == 0 && l.put(pkt) {
			n++
			continue
		}
		var one stack.PacketBufferList
		one.PushBack(pkt)
		k, err := l.Endpoint.WritePackets(one)
		if err != nil || k == 0 {
			return n, err
		}
		n, l.behind = n+1, l.behind+1
	}
	return n, nil
}

// put sends a frame if that does not block.
func (l *line) put(pkt *stack.PacketBuffer) bool {
	if l.out == nil {
		return false
	}
	l.frame, l.sent = appendFrame(l.frame[:0], pkt), false
	l.out.Write(l.try)
	return l.sent
}

func (l *line) try(fd uintptr) bool {
	_, err := call(unix.SYS_WRITE, fd, l.frame)
	l.sent = err == nil
	return true // do not wait for a full socket
}

// send writes queued frames, each with one write, see [machine.PortNetwork]. QEMU would exit if it read
// several frames at once and the link ended before the guest had taken all of them.
func (l *line) send(ctx context.Context, conn net.Conn) error {
	var frame []byte
	for {
		pkt := l.ReadContext(ctx)
		if pkt == nil {
			return nil
		}
		frame = appendFrame(frame[:0], pkt)
		pkt.DecRef()
		if _, err := conn.Write(frame); err != nil {
			return fmt.Errorf("write frame: %w", err)
		}
		l.mu.Lock()
		l.behind--
		l.mu.Unlock()
	}
}

// appendFrame appends the length of a frame and the frame.
func appendFrame(b []byte, pkt *stack.PacketBuffer) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(pkt.Size()))
	for _, part := range pkt.AsSlices() {
		b = append(b, part...)
	}
	return b
}
