package netstack

import (
	"net/netip"
	"strings"
)

// WithReach returns a copy of the policy that treats some places as public
// although their addresses are not: the host's package mirrors. Their private
// names are resolved. The policy must still allow them, and the host's own
// addresses stay excluded.
func (p *Policy) WithReach(places []netip.AddrPort) *Policy {
	out := *p
	for _, a := range places {
		if ip := a.Addr(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() {
			out.reach = append(out.reach, a)
		}
	}
	return &out
}

// reachable reports whether an address is treated as public, at some port (port 0) or this one.
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

// Beside reports whether a guest could not reach a place without WithReach: its
// address is not public, or its name is not resolved.
func Beside(host string, ip netip.Addr) bool {
	return !ip.Is4() || within(ip, notPublic) || privateName(strings.ToLower(strings.TrimSuffix(host, ".")))
}
