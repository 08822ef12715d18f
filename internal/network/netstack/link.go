package netstack

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// MTU of the link. It is a virtual link, and large frames cost less per byte
	// than Ethernet's 1500.
	MTU = 16 << 10

	maxFrame   = header.EthernetMinimumSize + MTU
	sendQueue  = 512 // frames; if it is full, TCP retransmits
	linkBuffer = 256 << 10
	ourMAC     = tcpip.LinkAddress("\x52\x55\x0a\x00\x02\x02")
)

// Attach serves a machine's end of the link until it closes, ctx ends, or a frame is invalid.
func (s *Stack) Attach(ctx context.Context, conn net.Conn) error {
	s.attached.Lock()
	defer s.attached.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s.link.attach(conn)
	defer s.link.detach()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		cancel(s.link.send(ctx, conn))
	}()
	err := receive(reader(conn), s.link, s.neighbourly())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(err)
	<-sent
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// receive passes admitted frames to the stack.
func receive(conn io.Reader, link *line, admitted func([]byte) bool) error {
	r := bufio.NewReaderSize(conn, linkBuffer)
	var length [4]byte
	for {
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxStreamFrame {
			return fmt.Errorf("invalid frame of %d bytes", n)
		}
		if n > maxFrame {
			if _, err := r.Discard(int(n)); err != nil {
				return err
			}
			continue
		}
		frame, err := r.Peek(int(n))
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		if admitted(frame) {
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
			link.InjectInbound(0, pkt)
			pkt.DecRef()
		}
		r.Discard(int(n))
	}
}

// maxStreamFrame is the most that QEMU sends (NET_BUFSIZE). A larger frame
// means that the stream is out of sync.
const maxStreamFrame = 4096 + 65536

// admitted reports whether the stack should see a frame: ARP from the guest
// that asks for a local address or replies (after a fork, a new stack asks an
// existing guest), or IPv4 from the guest's address to a local one. The stack
// would also answer pings in the name of remote hosts: see [Stack.elsewhere].
func admitted(frame []byte) bool {
	if len(frame) < header.EthernetMinimumSize {
		return false
	}
	eth, rest := header.Ethernet(frame), frame[header.EthernetMinimumSize:]
	switch eth.Type() {
	case header.ARPProtocolNumber:
		arp := header.ARP(rest)
		if len(rest) < header.ARPSize || !arp.IsValid() || tcpip.AddrFrom4Slice(arp.ProtocolAddressSender()) != addressOf(Guest) {
			return false
		}
		return arp.Op() == header.ARPReply || arp.Op() == header.ARPRequest && here(tcpip.AddrFrom4Slice(arp.ProtocolAddressTarget()))
	case header.IPv4ProtocolNumber:
		ip := header.IPv4(rest)
		if !ip.IsValid(len(rest)) || ip.SourceAddress() != addressOf(Guest) {
			return false
		}
		switch ip.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber:
			return true
		case header.ICMPv4ProtocolNumber:
			return here(ip.DestinationAddress())
		}
	}
	return false
}

// elsewhere returns the packet of a frame that is IPv4 from the guest's address
// to a remote address, or nil.
func elsewhere(frame []byte) header.IPv4 {
	if len(frame) < header.EthernetMinimumSize+header.IPv4MinimumSize || header.Ethernet(frame).Type() != header.IPv4ProtocolNumber {
		return nil
	}
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	if !ip.IsValid(len(ip)) || ip.SourceAddress() != addressOf(Guest) || here(ip.DestinationAddress()) {
		return nil
	}
	return ip[:ip.TotalLength()]
}

func here(a tcpip.Address) bool { return a == addressOf(Gateway) || a == addressOf(Resolver) }
