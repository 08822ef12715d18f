package netstack

import (
	"net"
	"net/netip"
	"testing"

	"holt"
)

// TestReach: places treated as public are reachable only at their port, never
// include the host's own addresses, and are subject to the policy.
func TestReach(t *testing.T) {
	places := []netip.AddrPort{netip.MustParseAddrPort("10.99.98.97:443")}
	for _, never := range []string{"127.0.0.1:443", "169.254.169.254:443", "224.0.0.1:443", "0.0.0.0:443", "[fe80::1]:443"} {
		places = append(places, netip.MustParseAddrPort(never))
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP); ok {
			places = append(places, netip.AddrPortFrom(ip.Unmap(), 443))
		}
	}
	set := func(egress holt.Egress, allow ...string) *Stack {
		p, err := ParsePolicy(holt.NetworkPolicy{Egress: egress, Allow: allow})
		if err != nil {
			t.Fatal(err)
		}
		s := &Stack{}
		s.policy.Store(p.WithReach(places))
		return s
	}
	mirror := places[0]
	reaches := func(s *Stack, at netip.AddrPort) bool { return s.mayReach(s.newFlow(at, nil)) }
	open, off, some := set(holt.EgressOpen), set(holt.EgressOff), set(holt.EgressAllow, "mirror.example")
	for _, at := range append(places[1:], netip.AddrPortFrom(mirror.Addr(), 80), netip.MustParseAddrPort("10.99.98.96:443")) {
		if reaches(open, at) {
			t.Errorf("%s is reached", at)
		}
	}
	if !reaches(open, mirror) || reaches(off, mirror) || reaches(some, mirror) {
		t.Error("who reaches the mirror:", reaches(open, mirror), reaches(off, mirror), reaches(some, mirror))
	}
	some.names.note("mirror.example", mirror.Addr(), 0)
	if !reaches(some, mirror) {
		t.Error("by its name the mirror is not reached")
	}
	public := netip.MustParseAddr("93.184.216.34")
	for host, beside := range map[string]bool{"mirror.example": false, "mirror.example.": false, "mirror.CORP.": true, "mirror": true, "93.184.216.34": false} {
		if Beside(host, public) != beside || !Beside(host, mirror.Addr()) || !Beside(host, netip.IPv6Loopback()) {
			t.Errorf("%s is beside the host: %v", host, !beside)
		}
	}
}
