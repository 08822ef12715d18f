package sshd

import (
	"fmt"
	"testing"
)

// closed is a fake connection that records its close.
type closed bool

func (c *closed) Close() error { *c = true; return nil }

// TestPending: a site that opens the maximum of unauthenticated connections, from many addresses, does not affect the
// connections of others.
func TestPending(t *testing.T) {
	for _, from := range []string{"198.51.100.%d", "2001:db8:1:%x::/64"} {
		var p pendings
		honest := new(closed)
		left, ok := p.enter("203.0.113.9", honest)
		if !ok {
			t.Fatal("the first")
		}
		var all []*closed
		open := 0
		for n := range 3 * mostPending {
			all = append(all, new(closed))
			if _, ok := p.enter(place(fmt.Sprintf(from, n%8)), all[n]); !ok {
				*all[n] = true
			}
		}
		for _, one := range all {
			if !*one {
				open++
			}
		}
		if *honest || open > mostPending-1 || len(p.all) != mostPending {
			t.Errorf("%s: another's is closed: %v; %d of %d are open, %d counted", from, *honest, open, len(all), len(p.all))
		}
		late := new(closed)
		if _, ok := p.enter("203.0.113.8", late); !ok || bool(*late) || len(p.all) != mostPending {
			t.Errorf("%s: another does not come in", from)
		}
		left()
		left()
		if len(p.all) != mostPending-1 {
			t.Errorf("%d are counted", len(p.all))
		}
	}
	var p pendings
	for n := range 2 * mostPendingOf {
		if _, ok := p.enter("198.51.100.1", new(closed)); ok != (n < mostPendingOf) {
			t.Errorf("connection %d of one address: %v", n, ok)
		}
	}
}
