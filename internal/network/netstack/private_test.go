package netstack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"holt"
)

// privateWorld has a resolver that knows names of the host's network.
func privateWorld(t *testing.T) *world {
	w := inWorld(t)
	if w == nil {
		return nil
	}
	for name, records := range map[string][]string{
		"3.2.1.10.in-addr.arpa":                  {"PTR db.corp."},
		"5.5.16.172.in-addr.arpa":                {"PTR db.corp."},
		"5.5.15.172.in-addr.arpa":                {"PTR five.example."},
		"16.172.in-addr.arpa":                    {"NS ns.corp."},
		"172.in-addr.arpa":                       {"NS ns.example."},
		"5.16-31.172.in-addr.arpa":               {"PTR db.corp."},
		"b._dns-sd._udp.0.7.168.192." + reverse4: {"PTR corp."},
		"99.216.184.93.in-addr.arpa":             {"PTR host.example."},
		"34.216.184.93.in-addr.arpa":             {"PTR www.example."},
		"35.216.184.93.in-addr.arpa":             {"PTR builder.lan.", "PTR other.example."},
		"2.2.0.10.in-addr.arpa":                  {"PTR router.corp."},
		strings.Repeat("0.", 31) + "f.ip6.arpa":  {"PTR db.corp."},
		"_ldap._tcp.corp":                        {"SRV 0 0 389 dc1.corp."},
		"db.corp":                                {"A 10.1.2.3"},
		"www.corp":                               {"A 93.184.216.34"},
		"ssh.corp":                               {"CNAME db.corp.", "A 10.1.2.3"},
		"mirror.internal":                        {"A 192.168.7.7"},
		"intranet":                               {"A 10.1.2.3"},
		"dev.localhost":                          {"A 10.1.2.3"},
		"www.example":                            {"A 93.184.216.34", "MX 1 mx.example.", "MX 2 mx.internal.", "TXT spf", "RP who.example. .", "SSHFP 1 1 ABCDEF", "NSEC a.example. A", "HTTPS 1 . ipv4hint=10.1.2.3"},
		"_imap._tcp.example":                     {"SRV 0 0 143 mail.example.", "SRV 1 0 143 mail.home.arpa."},
		"cdn.example":                            {"CNAME node.internal.", "A 93.184.216.35"},
		"dangling.example":                       {"CNAME node.internal."},
	} {
		w.name(name, records...)
	}
	// An alias's target is the owner of further records.
	for name, owner := range map[string]string{"cdn.example.": "node.internal.", "ssh.corp.": "db.corp."} {
		all, _ := w.zone.Load(name)
		all.([]dns.RR)[1].Header().Name = owner
	}
	return w
}

// told summarises the guest's answer to a query.
func (g *guest) told(name string, kind uint16) string {
	g.t.Helper()
	a, err := g.ask(name, kind)
	if err != nil {
		g.t.Fatalf("ask for %s: %v", name, err)
	}
	all := []string{dns.RcodeToString[a.Rcode]}
	for _, rr := range a.Answer {
		all = append(all, strings.Join(strings.Fields(rr.String())[3:], " "))
	}
	slices.Sort(all[1:])
	return strings.Join(all, "; ")
}

// TestPrivateNames: a guest does not get names of the host's network, most of
// which are not even queried; entries for addresses or names allow them.
func TestPrivateNames(t *testing.T) {
	w := privateWorld(t)
	if w == nil {
		return
	}
	_, inTen := w.start(holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{"10.0.0.0/8"}})
	_, named := w.start(holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{"*.corp", "*.168.192.in-addr.arpa", "*.arpa", "mirror.internal"}})
	_, listed := w.start(holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"*.corp", "10.1.2.3"}})
	_, plain := w.start(open)
	six := strings.Repeat("0.", 31) + "f.ip6.arpa"
	for _, one := range []struct {
		g     *guest
		name  string
		kind  uint16
		asked bool
		want  string
	}{
		{plain, "3.2.1.10.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{plain, "5.5.16.172.IN-ADDR.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{plain, "5.5.16.172.in-addr.arpa", dns.TypeANY, false, "NXDOMAIN"},
		{plain, "16.172.in-addr.arpa", dns.TypeNS, false, "NXDOMAIN"},
		{plain, "10.in-addr.arpa", dns.TypeSOA, false, "NXDOMAIN"},
		{plain, "172.in-addr.arpa", dns.TypeNS, true, "NOERROR; NS ns.example."},
		{plain, "5.5.15.172.in-addr.arpa", dns.TypePTR, true, "NOERROR; PTR five.example."},
		{plain, "5.16-31.172.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{plain, "b._dns-sd._udp.0.7.168.192.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{plain, "99.216.184.93.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"}, // the host's
		{plain, "34.216.184.93.in-addr.arpa", dns.TypePTR, true, "NOERROR; PTR www.example."},
		{plain, "35.216.184.93.in-addr.arpa", dns.TypePTR, true, "NOERROR; PTR other.example."},
		{plain, "2.2.0.10.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{plain, six, dns.TypePTR, false, "NXDOMAIN"},
		{plain, "_ldap._tcp.corp", dns.TypeSRV, false, "NXDOMAIN"},
		{plain, "db.corp", dns.TypeA, false, "NXDOMAIN"},
		{plain, "www.corp", dns.TypeA, false, "NXDOMAIN"},
		{plain, "mirror.internal", dns.TypeA, false, "NXDOMAIN"},
		{plain, "intranet", dns.TypeA, false, "NXDOMAIN"},
		{plain, "dev.localhost", dns.TypeA, false, "NXDOMAIN"},
		{plain, "www.example", dns.TypeANY, true, "NOERROR; A 93.184.216.34; MX 1 mx.example.; SSHFP 1 1 ABCDEF; TXT \"spf\""},
		{plain, "of.example", dns.TypeAXFR, false, "NOERROR"},
		{plain, "of.example", dns.TypeNSEC, false, "NOERROR"},
		{plain, "of.example", dns.TypeHTTPS, false, "NOERROR"},
		{plain, "_imap._tcp.example", dns.TypeSRV, true, "NOERROR; SRV 0 0 143 mail.example."},
		{plain, "cdn.example", dns.TypeA, true, "NOERROR; A 93.184.216.35; CNAME node.internal."},
		{plain, "dangling.example", dns.TypeA, true, "NOERROR"},
		{inTen, "3.2.1.10.in-addr.arpa", dns.TypePTR, true, "NOERROR; PTR db.corp."},
		{inTen, "5.5.16.172.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{inTen, "2.2.0.10.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{inTen, "db.corp", dns.TypeA, true, "NOERROR; A 10.1.2.3"},
		{inTen, "db.corp", dns.TypeAAAA, true, "NOERROR"},
		{inTen, "db.corp", dns.TypeMX, true, "NOERROR"},
		{inTen, "ssh.corp", dns.TypeA, true, "NOERROR; A 10.1.2.3; CNAME db.corp."},
		{inTen, "intranet", dns.TypeA, true, "NOERROR; A 10.1.2.3"},
		{inTen, "www.corp", dns.TypeA, true, "NXDOMAIN"},
		{inTen, "mirror.internal", dns.TypeA, true, "NXDOMAIN"},
		{inTen, "nobody.corp", dns.TypeA, true, "NXDOMAIN"},
		{inTen, "_ldap._tcp.corp", dns.TypeSRV, true, "NXDOMAIN"},
		{inTen, "dev.localhost", dns.TypeA, false, "NXDOMAIN"},
		{named, "_ldap._tcp.corp", dns.TypeSRV, true, "NOERROR; SRV 0 0 389 dc1.corp."},
		{named, "www.corp", dns.TypeA, true, "NOERROR; A 93.184.216.34"},
		{named, "db.corp", dns.TypeA, true, "NXDOMAIN"}, // its address is not granted
		{named, "b._dns-sd._udp.0.7.168.192.in-addr.arpa", dns.TypePTR, true, "NOERROR; PTR corp."},
		{named, "3.2.1.10.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
		{named, "x.home.arpa", dns.TypeA, false, "NXDOMAIN"},
		{named, "other.internal", dns.TypeA, false, "NXDOMAIN"},
		{listed, "db.corp", dns.TypeA, true, "NOERROR; A 10.1.2.3"},
		{listed, "_ldap._tcp.corp", dns.TypeSRV, true, "NOERROR; SRV 0 0 389 dc1.corp."},
		{listed, "34.216.184.93.in-addr.arpa", dns.TypePTR, false, "NXDOMAIN"},
	} {
		w.asked.Clear()
		got := one.g.told(one.name, one.kind)
		if _, asked := w.asked.Load(strings.ToLower(one.name) + "."); got != one.want || asked != one.asked {
			t.Errorf("%s %s: %q, asked %v; not %q, %v", one.name, dns.TypeToString[one.kind], got, asked, one.want, one.asked)
		}
	}
	// The answer does not reveal whether such a name exists.
	for _, g := range []*guest{plain, inTen} {
		_, is := g.addresses("mirror.internal")
		if _, not := g.addresses("nobody.internal"); strings.ReplaceAll(is, "mirror", "nobody") != not {
			t.Errorf("of a name that is: %s; of one that is not: %s", is, not)
		}
	}
	// Guests can resolve the host's package mirrors under any name.
	s, g := w.start(open)
	p, err := ParsePolicy(open)
	if err != nil {
		t.Fatal(err)
	}
	s.SetPolicy(p.WithReach([]netip.AddrPort{netip.MustParseAddrPort("192.168.7.7:443")}))
	if got := g.told("mirror.internal", dns.TypeA); got != "NOERROR; A 192.168.7.7" {
		t.Errorf("a mirror: %s", got)
	}
	s.SetPolicy(p.WithReach([]netip.AddrPort{netip.MustParseAddrPort("93.184.216.34:443")}))
	if got := g.told("www.corp", dns.TypeA); got != "NOERROR; A 93.184.216.34" {
		t.Errorf("a mirror whose address is public: %s", got)
	}
}

// TestQueriesAreCounted: queries and answers, which can carry data, count as
// traffic, except those answered locally.
func TestQueriesAreCounted(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	secret, answer := strings.Repeat("a", 60), strings.Repeat("b", 200)
	w.name(secret+".example", "TXT "+answer)
	s, g := w.start(open)
	for _, name := range []string{InternalName, HostName, "db.corp", "1.1.168.192." + reverse4} {
		g.told(name, dns.TypeA)
	}
	count := func() (out holt.Traffic) {
		for _, one := range s.Traffic() {
			if one.Destination == "dns" {
				out = one
			}
		}
		return out
	}
	if got := count(); got != (holt.Traffic{}) {
		t.Errorf("what is answered here: %+v", got)
	}
	const n = 10
	for range n {
		if got := g.told(secret+".example", dns.TypeTXT); !strings.Contains(got, answer) {
			t.Fatal(got)
		}
	}
	if got := count(); got.Connections != n || got.Sent < n*60 || got.Sent > n*120 || got.Received < n*260 || got.Received > n*400 {
		t.Errorf("%d questions: %+v", n, got)
	}
	if sum := holt.SumTraffic(s.Traffic()); sum.Received < n*260 {
		t.Errorf("in all: %+v", sum)
	}
}

// TestReverseOf: the networks of names of in-addr.arpa.
func TestReverseOf(t *testing.T) {
	for name, want := range map[string]string{
		"in-addr.arpa": "0.0.0.0/0 false true", "10.in-addr.arpa": "10.0.0.0/8 false true", "4.3.2.1.in-addr.arpa": "1.2.3.4/32 false true",
		"5.4.3.2.1.in-addr.arpa": "1.2.3.4/32 true true", "01.in-addr.arpa": "0.0.0.0/0 true true", "256.1.in-addr.arpa": "1.0.0.0/8 true true",
		"0-25.168.192.in-addr.arpa": "192.168.0.0/16 true true", "xin-addr.arpa": "0.0.0.0/0 false false", "example": "0.0.0.0/0 false false",
	} {
		n, within, ok := reverseOf(name)
		if got := fmt.Sprint(n, within, ok); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}
