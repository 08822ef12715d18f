package holt

import (
	"net"
	"net/netip"
)

// Source says who a remote address is where callers are counted: the address, or of IPv6 the network of 64 bits, which
// one caller commonly has to himself.
func Source(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if p, err := ip.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
