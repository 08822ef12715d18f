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

// maxDestinations have a counter each; the other destinations share one.
const maxDestinations = 512

// counter counts the traffic with one destination.
type counter struct {
	sent, received, opened, open, refused atomic.Int64
}

type counters struct {
	mu  sync.Mutex
	all map[string]*counter
}

// opens counts a flow to a destination, whose counter is not merged while the flow is open.
func (c *counters) opens(destination string) *counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of(destination)
	one.open.Add(1)
	one.opened.Add(1)
	return one
}

// questions is the destination for the traffic of DNS queries to the host's resolvers.
const questions = "dns"

// asks counts a DNS query and the bytes of its messages: a guest can send data in names.
func (c *counters) asks(sent, received int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of(questions)
	one.opened.Add(1)
	one.sent.Add(int64(sent))
	one.received.Add(int64(received))
}

// refuse counts a refused flow to a destination.
func (c *counters) refuse(destination string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(destination).refused.Add(1)
}

// of returns the counter of a destination. If there are too many, it merges the
// one with the least traffic into that of the others (""), so that a guest
// cannot hide traffic among a thousand destinations.
func (c *counters) of(destination string) *counter {
	if c.all == nil {
		c.all = map[string]*counter{"": {}}
	}
	if one := c.all[destination]; one != nil {
		return one
	}
	if len(c.all) >= maxDestinations && !c.join() {
		return c.all[""]
	}
	c.all[destination] = &counter{}
	return c.all[destination]
}

// join merges the smallest counter into that of the others.
func (c *counters) join() bool {
	least, name := (*counter)(nil), ""
	for n, one := range c.all {
		if n != "" && one.open.Load() == 0 && (least == nil || one.bytes() < least.bytes()) {
			least, name = one, n
		}
	}
	if least == nil {
		return false
	}
	rest := c.all[""]
	rest.sent.Add(least.sent.Load())
	rest.received.Add(least.received.Load())
	rest.opened.Add(least.opened.Load())
	rest.refused.Add(least.refused.Load())
	delete(c.all, name)
	return true
}

func (c *counter) bytes() int64 { return c.sent.Load() + c.received.Load() }

// destination returns the name that the guest looked up for an address, or the address.
func (s *Stack) destination(to netip.AddrPort) string {
	switch names := s.names.of(to.Addr()); {
	case to.Addr() == Gateway:
		return HostName
	case len(names) > 0:
		return slices.Min(names)
	}
	return to.Addr().String()
}

// Traffic returns the traffic by destination, in the order of names.
func (s *Stack) Traffic() []holt.Traffic {
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	out := []holt.Traffic{}
	for destination, c := range s.count.all {
		one := holt.Traffic{
			Destination: destination, Sent: c.sent.Load(), Received: c.received.Load(),
			Connections: c.opened.Load(), Open: c.open.Load(), Refused: c.refused.Load(),
		}
		if one != (holt.Traffic{}) {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b holt.Traffic) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}

// atomicTime is a time that several goroutines set.
type atomicTime struct{ ns atomic.Int64 }

func (a *atomicTime) now()           { a.ns.Store(time.Now().UnixNano()) }
func (a *atomicTime) get() time.Time { return time.Unix(0, a.ns.Load()) }
