package netstack

import (
	"net/netip"
	"strings"
)

// WithReach returns the policy, for which places count as the internet's though their addresses are not:
// where the host itself gets packages from. Private names of theirs are told. It lets nothing else pass, and never what the host has itself.
func (p *Policy) WithReach(places []netip.AddrPort) *Policy {
	out := *p
	for _, a := range places {
		if ip := a.Addr(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() {
			out.reach = append(out.reach, a)
		}
	}
	return &out
}

// reachable tells whether an address is the internet's, at some port (port 0) or this one.
func (s *Stack) reachable(p *Policy, ip netip.Addr, port uint16) bool {
	if s.public(ip) {
		return true
	}
	for _, a := range p.reach {
		if a.Addr() == ip && (port == 0 || a.Port() == port) {
			return !s.host.contain(ip)
		}
	}
	return false
}

// Beside tells whether a guest would not find a place by itself: its address is none of the internet's, or its name is
// one that a guest is not told.
func Beside(host string, ip netip.Addr) bool {
	return !ip.Is4() || within(ip, notPublic) || privateName(strings.ToLower(strings.TrimSuffix(host, ".")))
}
