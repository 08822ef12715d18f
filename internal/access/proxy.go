package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the addresses of proxies in front of the daemon. What one of them says of who calls is
// believed, what anybody else says is not.
type Proxies []netip.Prefix

// Trusts says whether addr is one of them.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(p, func(one netip.Prefix) bool { return one.Contains(addr) })
}

// Client returns the address that a request comes from: of the connection or, if that is a proxy's, the last
// in X-Forwarded-For that no trusted proxy has. It is not valid for a connection without one, as of a unix socket.
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

// Remote is Client for a log: with the port of the connection, as long as nobody is between.
func (p Proxies) Remote(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && p.Trusts(at.Addr().Unmap()) {
		return p.Client(r).String()
	}
	return r.RemoteAddr
}
