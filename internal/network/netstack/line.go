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

// line is the stack's end of the link. A frame is sent from the goroutine that
// made it if there is room, since waking a sender takes longer than sending.
// Otherwise it is queued, as are all frames after it.
type line struct {
	*channel.Endpoint // queue of frames

	mu     sync.Mutex // never held during a wait
	out    syscall.RawConn
	behind int // frames queued or being sent by [line.send]; no frame overtakes them
	frame  []byte
	sent   bool // frame has been sent
}

func newLine(mac tcpip.LinkAddress) *line {
	l := &line{Endpoint: channel.New(sendQueue, maxFrame, mac), frame: make([]byte, 0, 4+maxFrame)}
	// Frames use a local socket, which does not lose or change any.
	l.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	return l
}

// attach connects the link. Frames queued for an earlier connection are dropped.
func (l *line) attach(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Drain()
	l.behind, l.out = 0, nil
	if sc, ok := conn.(syscall.Conn); ok && conn.LocalAddr().Network() == "unixpacket" { // a stream might accept part of a frame
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

// put sends a frame if it does not block.
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
	return true // do not wait until the socket is writable
}

// send writes queued frames to the guest, one frame per write, see
// [machine.PortNetwork]. QEMU exits if it reads several frames at once and the
// link ends before the guest has taken all of them.
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

// appendFrame appends a frame with its length prefix.
func appendFrame(b []byte, pkt *stack.PacketBuffer) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(pkt.Size()))
	for _, part := range pkt.AsSlices() {
		b = append(b, part...)
	}
	return b
}
