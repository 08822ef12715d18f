package netstack

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holt"
)

// maxDestinations are counted each for itself; the others all together.
const maxDestinations = 512

// counter is what went to and from one destination.
type counter struct {
	sent, received, opened, open, refused atomic.Int64
}

type counters struct {
	mu  sync.Mutex
	all map[string]*counter
}

// of is the counter of a destination.
func (c *counters) of(destination string) *counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]*counter{}
	}
	one := c.all[destination]
	if one == nil && len(c.all) >= maxDestinations {
		destination = ""
		one = c.all[destination]
	}
	if one == nil {
		one = &counter{}
		c.all[destination] = one
	}
	return one
}

// destination is what a user calls an address: the name that the guest asked for, or itself.
func (s *Stack) destination(to netip.AddrPort) string {
	switch names := s.names.of(to.Addr()); {
	case to.Addr() == Gateway:
		return HostName
	case len(names) > 0:
		return slices.Min(names)
	}
	return to.Addr().String()
}

// Traffic returns what went where, in the order of names.
func (s *Stack) Traffic() []holt.Traffic {
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	out := []holt.Traffic{}
	for destination, c := range s.count.all {
		out = append(out, holt.Traffic{
			Destination: destination, Sent: c.sent.Load(), Received: c.received.Load(),
			Connections: c.opened.Load(), Open: c.open.Load(), Refused: c.refused.Load(),
		})
	}
	slices.SortFunc(out, func(a, b holt.Traffic) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}

// atomicTime is a moment that several set.
type atomicTime struct{ ns atomic.Int64 }

func (a *atomicTime) now()           { a.ns.Store(time.Now().UnixNano()) }
func (a *atomicTime) get() time.Time { return time.Unix(0, a.ns.Load()) }
