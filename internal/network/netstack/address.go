package netstack

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Addresses of the virtual network. They are the same for each machine, so that
// a fork keeps its address.
var (
	Guest    = netip.MustParseAddr("10.0.2.15")
	Gateway  = netip.MustParseAddr("10.0.2.2")
	Resolver = netip.MustParseAddr("10.0.2.3")
	inner    = netip.MustParsePrefix("10.0.2.0/24")
)

// notPublic are the networks of IANA's special-purpose registry (RFC 6890 and
// its updates) that are not globally reachable, and multicast and reserved
// networks: private, shared (carrier-grade NAT), loopback, link-local with the
// clouds' metadata address, documentation, benchmarks.
var notPublic = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's metadata service, although the address looks public
)

// never are networks that no policy opens: this host, its loopback, multicast and broadcast.
var (
	loopback = netip.MustParsePrefix("127.0.0.0/8")
	never    = parsePrefixes("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")
)

func parsePrefixes(all ...string) (out []netip.Prefix) {
	for _, one := range all {
		out = append(out, netip.MustParsePrefix(one))
	}
	return out
}

func within(ip netip.Addr, nets []netip.Prefix) bool {
	return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// hostAddresses are the host's own addresses, which may be public. Services
// there may trust local clients.
type hostAddresses struct {
	mu   sync.Mutex
	read time.Time
	own  []netip.Prefix
}

// hostFresh is how long they are cached.
const hostFresh = 2 * time.Second

// contain reports whether an address is the host's. If that cannot be determined, it returns true.
func (h *hostAddresses) contain(ip netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.read) > hostFresh {
		all, err := net.InterfaceAddrs()
		if err != nil {
			return true
		}
		h.own, h.read = h.own[:0], time.Now()
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok {
				if one, ok := netip.AddrFromSlice(n.IP); ok {
					one = one.Unmap()
					h.own = append(h.own, netip.PrefixFrom(one, one.BitLen()))
				}
			}
		}
	}
	return within(ip, h.own)
}
