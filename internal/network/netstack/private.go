package netstack

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// Names that are not in the public DNS. Queries for them could reveal the network that the host is in.
var (
	// privateZones are zones of private networks: RFC 6762 (local, and those of appendix G), RFC 8375.
	privateZones = []string{"local", "intranet", "internal", "private", "corp", "home", "lan", "home.arpa"}
	// reservedZones are not in any DNS: RFC 6761, RFC 7686, RFC 9476.
	reservedZones = []string{"localhost", "invalid", "onion", "alt"}
)

const (
	reverse4 = "in-addr.arpa" // RFC 1035, 3.5
	reverse6 = "ip6.arpa"     // RFC 3596, 2.5
)

// visibleTypes are the types of records that a guest can query: addresses, aliases, records of mail and services, and
// records of keys. Excluded are AAAA (the network has no IPv6), SVCB and HTTPS (they have address hints, and keys that
// encrypt the SNI), lists of a zone's names (NSEC, AXFR), and all others.
var visibleTypes = []uint16{
	dns.TypeA, dns.TypeCNAME, dns.TypeDNAME, dns.TypePTR, dns.TypeMX, dns.TypeTXT, dns.TypeSRV, dns.TypeNAPTR,
	dns.TypeNS, dns.TypeSOA, dns.TypeCAA, dns.TypeTLSA, dns.TypeSSHFP,
}

func inZone(name string, zones ...string) bool {
	return slices.ContainsFunc(zones, func(z string) bool { return name == z || strings.HasSuffix(name, "."+z) })
}

// privateName reports whether a name is one of a private network: without a dot (see RFC 7085), or in a private zone.
// The root is not.
func privateName(name string) bool {
	return name != "" && dns.CountLabel(name) == 1 || inZone(name, privateZones...)
}

// reverseOf returns the network of a name of in-addr.arpa. within: the name is not that of the network but below it, as
// in RFC 2317 or RFC 6763, 11.
func reverseOf(name string) (n netip.Prefix, within, ok bool) {
	var ip [4]byte
	bits := 0
	rest, below := strings.CutSuffix(name, "."+reverse4)
	if !below {
		return netip.PrefixFrom(netip.AddrFrom4(ip), 0), false, name == reverse4
	}
	for _, label := range slices.Backward(strings.Split(rest, ".")) {
		b, err := strconv.ParseUint(label, 10, 8)
		if bits == 32 || err != nil || label != strconv.FormatUint(b, 10) {
			within = true
			break
		}
		ip[bits/8] = byte(b)
		bits += 8
	}
	return netip.PrefixFrom(netip.AddrFrom4(ip), bits), within, true
}

// special reports whether all addresses of a reverse name's network are not public or, for a name within the network,
// whether some of them are not.
func special(n netip.Prefix, within bool) bool {
	return slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Overlaps(n) && (within || p.Bits() <= n.Bits()) })
}

// closed reports whether a name is the reverse name of addresses of which the guest may reach none.
func (s *Stack) closed(p *Policy, name string) bool {
	n, within, ok := reverseOf(name)
	switch {
	case !ok:
		return inZone(name, reverse6) // the network has no IPv6
	case inner.Overlaps(n) && n.Bits() >= inner.Bits():
		return true // addresses of this network
	case !special(n, within) && !(n.IsSingleIP() && s.host.contain(n.Addr())):
		return false
	}
	for _, g := range p.nets {
		ip := n.Addr()
		if g.Bits() > n.Bits() {
			ip = g.Addr()
		}
		if g.Overlaps(n) && s.granted(p, ip, 0) {
			return false
		}
	}
	return !slices.ContainsFunc(p.reach, func(a netip.AddrPort) bool { return n.Contains(a.Addr()) && !s.host.contain(a.Addr()) })
}

// named reports whether an entry of the policy names a private name explicitly: by itself, or by a wildcard within a
// private zone.
func (p *Policy) named(name string) bool {
	return slices.ContainsFunc(p.domains, func(d domain) bool {
		if !d.matches(name) {
			return false
		}
		n, within, ok := reverseOf(d.name)
		return !d.below || ok && special(n, within) || inZone(d.name, privateZones...) || inZone(d.name, reservedZones...) || inZone(d.name, reverse6)
	})
}

// hides reports whether a name is invisible to the guest. It is not queried upstream either.
func (s *Stack) hides(p *Policy, name string) bool {
	return (inZone(name, reservedZones...) || s.closed(p, name)) && !p.named(name)
}

// byAddress reports whether a name is visible only if its address is granted, or is that of a server of the host's
// packages: a granted network is useful only with its names.
func (p *Policy) byAddress(name string) bool { return privateName(name) && !p.named(name) }

// mayTell reports whether a record is visible: none of the names in it may be invisible.
func (s *Stack) mayTell(p *Policy, rr dns.RR) bool {
	plain := func(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
	owner := plain(rr.Header().Name)
	all := []string{owner}
	switch rr := rr.(type) {
	case *dns.CNAME:
		all = append(all, rr.Target)
	case *dns.DNAME:
		all = append(all, rr.Target)
	case *dns.PTR:
		if n, within, ok := reverseOf(owner); !ok || !special(n, within) { // otherwise the address is granted
			all = append(all, rr.Ptr)
		}
	case *dns.MX:
		all = append(all, rr.Mx)
	case *dns.SRV:
		all = append(all, rr.Target)
	case *dns.NAPTR:
		all = append(all, rr.Replacement)
	case *dns.NS:
		all = append(all, rr.Ns)
	case *dns.SOA:
		all = append(all, rr.Ns, rr.Mbox)
	}
	return !slices.ContainsFunc(all, func(name string) bool {
		name = plain(name)
		return s.hides(p, name) || p.byAddress(name)
	})
}
