package holt

import (
	"net"
	"net/netip"
)

// Source returns the part of a remote address by which callers are rate-limited: an IPv4 address, or the /64 network of
// an IPv6 address.
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
