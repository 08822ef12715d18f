package netstack

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	icmpBurst  = 256 // burst of the limit of 1,000 messages a second that a guest can cause, to it or to the host's network
	quotedMost = 548 // bytes of a packet that an error about it quotes (RFC 1812, 4.3.2.3)
	sentTTL    = 64
	mostPings  = 8                                   // partly received
	mostPiece  = (MTU - header.IPv4MinimumSize) &^ 7 // bytes of a message in one packet
)

// prohibited is the gateway's error for packets that the policy refuses or this
// network does not support (RFC 1812, 5.2.7.1).
var prohibited = icmpError{kind: header.ICMPv4DstUnreachable, code: 13, from: Gateway}

// expired is the gateway's error for a packet whose time to live has ended.
var expired = icmpError{kind: header.ICMPv4TimeExceeded, from: Gateway}

// icmpError is an ICMP error about a packet of the guest.
type icmpError struct {
	kind header.ICMPv4Type
	code header.ICMPv4Code
	info uint32 // the second word of the message, as the MTU of the next hop
	from netip.Addr
}

// elsewhere handles packets of the guest to remote addresses that the stack
// does not process: pings, and protocols other than TCP and UDP. It is called
// on the link's goroutine.
func (s *Stack) elsewhere(ip header.IPv4) {
	to := addrOf(ip.DestinationAddress())
	if to.IsMulticast() || to == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || inner.Contains(to) {
		return // these cause no errors (RFC 1122, 3.2.2)
	}
	if ip.TransportProtocol() == header.ICMPv4ProtocolNumber && (ip.More() || ip.FragmentOffset() != 0) {
		if ip = s.pieces.add(ip); ip == nil {
			return
		}
	}
	h := header.ICMPv4(ip.Payload())
	switch {
	case ip.TransportProtocol() != header.ICMPv4ProtocolNumber:
		if ip.FragmentOffset() != 0 {
			return
		}
	case len(h) < header.ICMPv4MinimumSize || isReply(h.Type()):
		return
	case h.Type() == header.ICMPv4Echo:
		if checksum.Checksum(h, 0) == 0xffff && s.ip.AllowICMPMessage() {
			s.echo(ip, h)
		}
		return
	}
	s.count.refuse(s.destination(netip.AddrPortFrom(to, 0)))
	s.tellLimited(prohibited, ip)
}

// isReply reports whether a message is a reply or an error, which must not be answered.
func isReply(t header.ICMPv4Type) bool {
	switch t {
	case header.ICMPv4Echo, header.ICMPv4Timestamp, header.ICMPv4InfoRequest, 17: // 17 is an address mask request
		return false
	}
	return true
}

// asSeen replaces the host's address in an error with the gateway's.
func (s *Stack) asSeen(e icmpError) icmpError {
	if s.host.contain(e.from) {
		e.from = Gateway
	}
	return e
}

// tellLimited is tell with a rate limit, for guests that send many refused packets.
func (s *Stack) tellLimited(e icmpError, packet []byte) {
	if s.ip.AllowICMPMessage() {
		s.tell(e, packet)
	}
}

// tell sends the guest an error about a packet, of which header and 8 bytes suffice.
func (s *Stack) tell(e icmpError, packet []byte) {
	quoted := packet[:min(len(packet), quotedMost)]
	body := make([]byte, header.ICMPv4MinimumSize+len(quoted))
	body[0], body[1] = byte(e.kind), byte(e.code)
	binary.BigEndian.PutUint32(body[4:], e.info)
	copy(body[header.ICMPv4MinimumSize:], quoted)
	s.deliver(e.from, sentTTL, body)
}

// deliver sends the guest an ICMP message and computes its checksum.
func (s *Stack) deliver(from netip.Addr, ttl uint8, body []byte) {
	mac, _ := s.guestMAC.Load().(tcpip.LinkAddress)
	if mac == "" {
		return
	}
	h := header.ICMPv4(body)
	h.SetChecksum(0)
	h.SetChecksum(^checksum.Checksum(h, 0))
	fields := header.IPv4Fields{ID: uint16(s.packets.Add(1)), TTL: ttl, Protocol: uint8(header.ICMPv4ProtocolNumber), SrcAddr: addressOf(from), DstAddr: addressOf(Guest)}
	for at := 0; at < len(body); at += mostPiece {
		piece := body[at:min(at+mostPiece, len(body))]
		fields.FragmentOffset, fields.Flags = uint16(at), 0
		if at+len(piece) < len(body) {
			fields.Flags = header.IPv4FlagMoreFragments
		}
		fields.TotalLength = uint16(header.IPv4MinimumSize + len(piece))
		frame := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize, header.EthernetMinimumSize+header.IPv4MinimumSize+len(piece))
		header.Ethernet(frame).Encode(&header.EthernetFields{SrcAddr: ourMAC, DstAddr: mac, Type: header.IPv4ProtocolNumber})
		ip := header.IPv4(frame[header.EthernetMinimumSize:])
		ip.Encode(&fields)
		ip.SetChecksum(^ip.CalculateChecksum())
		s.frame(append(frame, piece...))
	}
}

// frame sends a frame to the guest.
func (s *Stack) frame(b []byte) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b)})
	defer pkt.DecRef()
	var one stack.PacketBufferList
	one.PushBack(pkt)
	s.link.WritePackets(one)
}

// pieces reassembles fragmented pings. The link preserves order, so fragments
// that arrive out of order are dropped. Only the link's goroutine uses it.
type pieces struct{ set map[pieceKey][]byte }

type pieceKey struct {
	to tcpip.Address
	id uint16
}

// add returns the complete packet, with the header of its first fragment, when
// the last fragment has arrived.
func (p *pieces) add(ip header.IPv4) header.IPv4 {
	key := pieceKey{ip.DestinationAddress(), ip.ID()}
	have := header.IPv4(p.set[key])
	delete(p.set, key)
	switch {
	case ip.FragmentOffset() == 0:
		have = append(header.IPv4{}, ip...)
	case len(have) == 0 || len(have)-int(have.HeaderLength()) != int(ip.FragmentOffset()) || len(have)+int(ip.PayloadLength()) > maxDatagram-1:
		return nil
	default:
		have = append(have, ip.Payload()...)
	}
	if !ip.More() {
		have.SetTotalLength(uint16(len(have)))
		return have
	}
	if p.set == nil || len(p.set) >= mostPings {
		p.set = map[pieceKey][]byte{}
	}
	p.set[key] = have
	return nil
}

// packetOf returns the beginning of a packet that the stack has taken.
func packetOf(pkt *stack.PacketBuffer) []byte {
	return append(append([]byte{}, pkt.NetworkHeader().Slice()...), pkt.TransportHeader().Slice()...)
}

// datagramOf returns the beginning of a datagram of the guest, as quoted in an error about it.
func datagramOf(port uint16, to netip.AddrPort, length int) []byte {
	b := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(min(len(b)+length, 0xffff)), TTL: 1, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: addressOf(Guest), DstAddr: addressOf(to.Addr())})
	ip.SetChecksum(^ip.CalculateChecksum())
	header.UDP(b[header.IPv4MinimumSize:]).Encode(&header.UDPFields{SrcPort: port, DstPort: to.Port(), Length: uint16(min(header.UDPMinimumSize+length, 0xffff))})
	return b
}
