package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the addresses of trusted proxies in front of the daemon. X-Forwarded-For counts only in their requests.
type Proxies []netip.Prefix

// Trusts reports whether addr is a trusted proxy.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(p, func(one netip.Prefix) bool { return one.Contains(addr) })
}

// Client returns the address of the client of a request: that of the connection or, if it is a trusted proxy's, the last
// address in X-Forwarded-For that is not one. The result is not valid for a connection without an address, such as a
// unix socket.
func (p Proxies) Client(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := at.Addr().Unmap()
	if !p.Trusts(client) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if client = addr.Unmap(); !p.Trusts(client) {
			break
		}
	}
	return client
}

// Remote is Client for logs: it has the port of the connection too, unless that is a trusted proxy's.
func (p Proxies) Remote(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && p.Trusts(at.Addr().Unmap()) {
		return p.Client(r).String()
	}
	return r.RemoteAddr
}
