package netstack

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestEachForbiddenRangeIsNeeded: for each range that is not public there are
// addresses that only that range forbids: without it they are reachable. So the
// tests notice if a range is lost.
func TestEachForbiddenRangeIsNeeded(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	all := notPublic
	defer func() { notPublic = all }()
	for _, lost := range all {
		addresses := slices.DeleteFunc(slices.Clone(nextdoor), func(a string) bool { return !lost.Contains(netip.MustParseAddr(a)) })
		if len(addresses) == 0 && lost != loopback && !lost.Addr().IsMulticast() { // of these a stack takes no packets
			t.Errorf("no test tries to reach %s", lost)
		}
		others := slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return p == lost })
		for _, there := range []bool{false, true} {
			if notPublic = all; there {
				notPublic = others
			}
			_, g := w.start(open)
			for _, a := range addresses {
				w.leaks.Store(0)
				err := g.echo("tcp", a, time.Second)
				if heard := w.leaks.Load() > 0; (err == nil) != there || heard != there {
					t.Errorf("%s, refused by %s: %v; it is reached %v, and heard %v", a, lost, !there, err, heard)
				}
			}
			g.unplug()
		}
	}
}
