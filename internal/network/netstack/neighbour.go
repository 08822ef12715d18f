package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// learning is admitted, and also remembers the guest's hardware address. A guest that continues with another stack
// knows the gateway's address and does not send ARP requests.
func (s *Stack) learning() func(frame []byte) bool {
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
			s.ip.AddStaticNeighbor(nic, ipv4.ProtocolNumber, addressOf(Guest), from) // on an error the stack sends ARP requests
		}
		if !ours {
			s.elsewhere(ip)
		}
		return ours
	}
}
