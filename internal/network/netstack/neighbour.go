package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// neighbourly is admitted and also learns the guest's hardware address. A
// forked guest that meets a new stack knows the gateway's address and sends no
// ARP request.
func (s *Stack) neighbourly() func(frame []byte) bool {
	var known tcpip.LinkAddress
	return func(frame []byte) bool {
		ours := admitted(frame)
		ip := header.IPv4(nil)
		if !ours {
			if ip = elsewhere(frame); ip == nil {
				return false
			}
		}
		if from := header.Ethernet(frame).SourceAddress(); from != known && !header.IsMulticastEthernetAddress(from) {
			known = from
			s.guestMAC.Store(from)
			s.ip.AddStaticNeighbor(nic, ipv4.ProtocolNumber, addressOf(Guest), from) // after an error the stack sends an ARP request
		}
		if !ours {
			s.elsewhere(ip)
		}
		return ours
	}
}
