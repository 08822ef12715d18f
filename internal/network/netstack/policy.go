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
	HostName     = "host.holt.internal" // the host's loopback, for granted ports
	ProxyName    = "proxy.holt.internal"
)

// Ports of the gateway with a service.
const (
	InternalPort = 80
	ProxyPort    = 3128
)

const maxAllow = 256 // entries of a policy

// Policy is a computer's parsed network policy.
type Policy struct {
	egress  holt.Egress
	domains []domain
	nets    []network
	host    []uint16         // ports of the host's loopback
	reach   []netip.AddrPort // see WithReach
}

type domain struct {
	name  string // without the star
	below bool   // matches all subdomains, not the name itself
	port  uint16 // 0: all
}

type network struct {
	netip.Prefix
	port uint16 // 0: all
}

// ParsePolicy parses a policy. Errors: InvalidArgument.
func ParsePolicy(p holt.NetworkPolicy) (*Policy, error) {
	out := &Policy{egress: p.Egress}
	switch p.Egress {
	case holt.EgressOpen, holt.EgressAllow, holt.EgressOff:
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "invalid egress %q: use one of open, allow, off", clip(string(p.Egress)))
	}
	if len(p.Allow) > maxAllow {
		return nil, holt.Errorf(holt.InvalidArgument, "too many entries: a policy has at most %d", maxAllow)
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
		return holt.Errorf(holt.InvalidArgument, "invalid entry %q: %s", clip(entry), why).
			WithHint("an entry is a domain, *.domain, or an IPv4 address or network, each optionally with :PORT; or host.holt.internal:PORT")
	}
	place, port := entry, uint16(0)
	if before, after, ok := strings.Cut(entry, ":"); ok {
		n, err := strconv.ParseUint(after, 10, 16)
		if err != nil || n == 0 {
			return bad("the port must be a number from 1 to 65535; computers' networks have no IPv6")
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
			return bad("bits after the prefix are set: use " + n.Masked().String())
		case n.Bits() >= 8 && loopback.Contains(n.Addr()):
			return bad("the host's loopback is allowed only by port: use host.holt.internal:PORT")
		case n.Bits() > 0 && within(n.Addr(), never):
			return bad("no policy can allow this address")
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
			return bad("holt uses this port; let the service of the host listen at another port")
		}
		p.host = append(p.host, port)
	default:
		p.domains = append(p.domains, domain{name, below, port})
	}
	return nil
}

// clip shortens untrusted text for a message.
func clip(s string) string { return holt.Clip(s, 100) }

// canonical returns a domain name in lower case without the final dot, and
// whether it is valid (RFC 1123; service names begin with an underscore, RFC
// 2782).
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

// Name reports whether the guest may resolve a canonical name.
func (p *Policy) name(name string) bool {
	switch p.egress {
	case holt.EgressOpen:
		return true
	case holt.EgressAllow:
		return slices.ContainsFunc(p.domains, func(d domain) bool { return d.matches(name) })
	}
	return false
}

// granted reports whether an entry names the address itself, at some port (port
// 0) or this one. An address that is not public is granted only by a network
// that is not public either: 0.0.0.0/0 means the internet, not the networks of
// the host. The host's own public address is granted only by its exact address.
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

// permits reports whether a public address may be reached, at some port (port
// 0) or this one, under names that resolved to it.
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

// GrantsInner reports whether addresses or ports of the host's networks are granted.
func (p *Policy) GrantsInner() bool { return len(p.nets)+len(p.host) > 0 }

// onHost reports whether a port of the host's loopback is granted.
func (p *Policy) onHost(port uint16) bool {
	return p.egress != holt.EgressOff && slices.Contains(p.host, port)
}
