package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// neighbourly is admitted that also remembers the guest's hardware address: one that goes on with another
// stack than before knows ours, and will not ask; to be asked by whom it speaks to is no part of its world.
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
			s.ip.AddStaticNeighbor(nic, ipv4.ProtocolNumber, addressOf(Guest), from) // an error: it asks after all
		}
		if !ours {
			s.elsewhere(ip)
		}
		return ours
	}
}
