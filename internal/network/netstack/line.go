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

// line is the stack's end of the link. A frame goes to who is attached from where it was made, if there is room for it: to wake
// somebody who sends it takes longer than to send it. Else it waits, and all that come behind it.
type line struct {
	*channel.Endpoint // frames that wait

	mu     sync.Mutex // never held while anybody is waited for
	out    syscall.RawConn
	behind int // frames that wait or are being sent by [line.send]; none overtakes them
	frame  []byte
	sent   bool // frame was
}

func newLine(mac tcpip.LinkAddress) *line {
	l := &line{Endpoint: channel.New(sendQueue, maxFrame, mac), frame: make([]byte, 0, 4+maxFrame)}
	// Frames come by a socket, which loses and changes nothing.
	l.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	return l
}

// attach has what is sent from now on go to a connection; what was meant for a former one does not.
func (l *line) attach(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Drain()
	l.behind, l.out = 0, nil
	if sc, ok := conn.(syscall.Conn); ok && conn.LocalAddr().Network() == "unixpacket" { // a stream would take a part of a frame
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

// put sends a frame if that needs no waiting.
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
	return true // who is full is not waited for
}

// send writes what waits for the guest: each frame at once and alone, see [machine.PortNetwork]. QEMU would
// end if it had taken several with one read, and the link ended before the guest has taken them all.
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

// appendFrame appends a frame behind its length.
func appendFrame(b []byte, pkt *stack.PacketBuffer) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(pkt.Size()))
	for _, part := range pkt.AsSlices() {
		b = append(b, part...)
	}
	return b
}
