package netstack

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxNames  = 4096             // that are remembered; the one that ends first gives way
	leastKept = 10 * time.Minute // for which an answer counts, whatever it says: who was told an address keeps it for a while
	mostKept  = 24 * time.Hour
)

// names remembers which names the resolver gave an address for.
type names struct {
	mu  sync.Mutex
	all map[answer]time.Time // until when it counts
}

type answer struct {
	ip   netip.Addr
	name string
}

// note remembers an answer for as long as it says, within bounds.
func (n *names) note(name string, ip netip.Addr, lives time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[answer]time.Time{}
	}
	now, a := time.Now(), answer{ip, name}
	if _, known := n.all[a]; !known && len(n.all) >= maxNames {
		n.forget(now)
	}
	n.all[a] = now.Add(min(max(lives, leastKept), mostKept))
}

// forget makes room: what has ended, or, if nothing has, what ends first.
func (n *names) forget(now time.Time) {
	var first answer
	var at time.Time
	for a, end := range n.all {
		if end.Before(now) {
			delete(n.all, a)
		} else if at.IsZero() || end.Before(at) {
			first, at = a, end
		}
	}
	if len(n.all) >= maxNames {
		delete(n.all, first)
	}
}

// of returns the names that an address was given for.
func (n *names) of(ip netip.Addr) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for a, end := range n.all {
		if a.ip == ip && now.Before(end) {
			out = append(out, a.name)
		}
	}
	return out
}
