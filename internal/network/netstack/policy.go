package netstack

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"holt"
)

// Names that the resolver answers itself.
const (
	InternalName = "holt.internal"      // this computer's own API
	S3Name       = "s3.holt.internal"   // this computer's own artifacts, for clients of S3
	HostName     = "host.holt.internal" // granted ports of the host's loopback
	ProxyName    = "proxy.holt.internal"
)

// Ports of the gateway that this package serves.
const (
	InternalPort = 80
	ProxyPort    = 3128
)

const maxAllow = 256 // entries of a policy

// Policy is the parsed network policy of a computer.
type Policy struct {
	egress  holt.Egress
	domains []domain
	nets    []network
	host    []uint16         // ports of the host's loopback
	reach   []netip.AddrPort // see WithReach
}

type domain struct {
	name  string // without the star
	below bool   // it matches the names below it, not itself
	port  uint16 // 0: all
}

type network struct {
	netip.Prefix
	port uint16 // 0: all
}

// ParsePolicy reads a policy. Errors: InvalidArgument.
func ParsePolicy(p holt.NetworkPolicy) (*Policy, error) {
	out := &Policy{egress: p.Egress}
	switch p.Egress {
	case holt.EgressOpen, holt.EgressAllow, holt.EgressOff:
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "invalid egress %q: it must be one of open, allow, off", clip(string(p.Egress)))
	}
	if len(p.Allow) > maxAllow {
		return nil, holt.Errorf(holt.InvalidArgument, "the policy has more than %d entries", maxAllow)
	}
	for _, entry := range p.Allow {
		if err := out.add(entry); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *Policy) add(entry string) error {
	bad := func(why string) error {
		return holt.Errorf(holt.InvalidArgument, "invalid entry %q of a network policy: %s", clip(entry), why).
			WithHint("an entry is a domain, *.domain, an IPv4 address or network, each with :PORT or without; or host.holt.internal:PORT")
	}
	place, port := entry, uint16(0)
	if before, after, ok := strings.Cut(entry, ":"); ok {
		n, err := strconv.ParseUint(after, 10, 16)
		if err != nil || n == 0 {
			return bad("the port is not a number from 1 to 65535 (addresses must be IPv4)")
		}
		place, port = before, uint16(n)
	}
	if ip, err := netip.ParseAddr(place); err == nil {
		place = netip.PrefixFrom(ip, ip.BitLen()).String()
	}
	if strings.Contains(place, "/") {
		n, err := netip.ParsePrefix(place)
		switch {
		case err != nil || !n.Addr().Is4():
			return bad("it is not an IPv4 network")
		case n.Masked() != n:
			return bad("the address of the network is " + n.Masked().String())
		case n.Bits() >= 8 && loopback.Contains(n.Addr()):
			return bad("ports of the host's loopback are granted as host.holt.internal:PORT")
		case n.Bits() > 0 && within(n.Addr(), never):
			return bad("a policy cannot allow multicast, reserved or unspecified addresses")
		}
		p.nets = append(p.nets, network{n, port})
		return nil
	}
	name, below := strings.CutPrefix(place, "*.")
	name, ok := canonical(name)
	switch {
	case !ok:
		return bad("it is not a domain")
	case name == HostName && !below:
		if port == 0 {
			return bad("the port is missing")
		}
		if port == InternalPort || port == ProxyPort {
			return bad("holt uses this port of host.holt.internal itself; let the host's service listen at another port")
		}
		p.host = append(p.host, port)
	default:
		p.domains = append(p.domains, domain{name, below, port})
	}
	return nil
}

// clip shortens a value of a caller or guest for errors.
func clip(s string) string { return holt.Clip(s, 100) }

// canonical returns a domain name in lower case without the trailing dot, and whether it is one (RFC 1123, and
// underscores for service names, RFC 2782).
func canonical(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "", false
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return "", false
			}
		}
	}
	return name, true
}

func (d domain) matches(name string) bool {
	if !d.below {
		return name == d.name
	}
	rest, ok := strings.CutSuffix(name, d.name)
	return ok && strings.HasSuffix(rest, ".") && len(rest) > 1
}

// name reports whether a canonical name may be resolved.
func (p *Policy) name(name string) bool {
	switch p.egress {
	case holt.EgressOpen:
		return true
	case holt.EgressAllow:
		return slices.ContainsFunc(p.domains, func(d domain) bool { return d.matches(name) })
	}
	return false
}

// granted reports whether an entry of the policy has the address, at the port or, with 0, at any port. An address
// that is not public needs an entry within its special network: 0.0.0.0/0 covers only the internet. The host's own
// public address needs an entry for itself.
func (p *Policy) granted(ip netip.Addr, port uint16, hosts bool) bool {
	if p.egress == holt.EgressOff || !ip.Is4() || within(ip, never) {
		return false
	}
	least := 0
	for _, special := range notPublic {
		if special.Contains(ip) {
			least = special.Bits()
		}
	}
	if least == 0 && hosts {
		least = 32
	}
	return slices.ContainsFunc(p.nets, func(n network) bool {
		return n.Contains(ip) && n.Bits() >= least && (n.port == 0 || port == 0 || n.port == port)
	})
}

// permits reports whether a public address with these names may be reached, at the port or, with 0, at any port.
func (p *Policy) permits(port uint16, names []string) bool {
	switch p.egress {
	case holt.EgressOpen:
		return true
	case holt.EgressAllow:
		return slices.ContainsFunc(p.domains, func(d domain) bool {
			return (d.port == 0 || port == 0 || d.port == port) && slices.ContainsFunc(names, d.matches)
		})
	}
	return false
}

// GrantsInner reports whether the policy grants addresses, or ports of the host.
func (p *Policy) GrantsInner() bool { return len(p.nets)+len(p.host) > 0 }

// onHost reports whether a port of the host's loopback is granted.
func (p *Policy) onHost(port uint16) bool {
	return p.egress != holt.EgressOff && slices.Contains(p.host, port)
}
