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

// opens counts a flow to a destination, which stays counted for itself until the flow is closed.
func (c *counters) opens(destination string) *counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of(destination)
	one.open.Add(1)
	one.opened.Add(1)
	return one
}

// questions is the destination of questions for names, which the host's resolvers were asked.
const questions = "dns"

// asks counts a question, and the bytes of its messages: a name carries data as well as a connection does.
func (c *counters) asks(sent, received int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of(questions)
	one.opened.Add(1)
	one.sent.Add(int64(sent))
	one.received.Add(int64(received))
}

// refuse counts that a destination was refused.
func (c *counters) refuse(destination string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(destination).refused.Add(1)
}

// of is the counter of a destination. If there are too many, that to which least went joins the others
// (""): a guest that asks for a thousand names hides no traffic by it.
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

// join adds the least of the counters to the others'.
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

// atomicTime is a snapshot that several set.
type atomicTime struct{ ns atomic.Int64 }

func (a *atomicTime) now()           { a.ns.Store(time.Now().UnixNano()) }
func (a *atomicTime) get() time.Time { return time.Unix(0, a.ns.Load()) }
