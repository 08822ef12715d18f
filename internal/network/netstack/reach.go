package netstack

import (
	"net/netip"
	"strings"
)

// WithReach returns the policy with places that count as public although their addresses are not: the servers of the
// host's packages. Their private names are visible. It permits nothing else, and no address of the host.
func (p *Policy) WithReach(places []netip.AddrPort) *Policy {
	out := *p
	for _, a := range places {
		if ip := a.Addr(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() {
			out.reach = append(out.reach, a)
		}
	}
	return &out
}

// reachable reports whether an address counts as public, at the port or, with 0, at any port.
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

// Beside reports whether a guest cannot reach a place without WithReach: its address is not public, or its name is
// private.
func Beside(host string, ip netip.Addr) bool {
	return !ip.Is4() || within(ip, notPublic) || privateName(strings.ToLower(strings.TrimSuffix(host, ".")))
}
