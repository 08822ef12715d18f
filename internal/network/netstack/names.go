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
	all map[netip.Addr]map[string]time.Time // until when it counts
	n   int

	noted int64 // how often something was
}

// note remembers an answer for as long as it says, within bounds.
func (n *names) note(name string, ip netip.Addr, lives time.Duration) {
	now := time.Now()
	n.keep(name, ip, now.Add(min(max(lives, leastKept), mostKept)), now)
}

func (n *names) keep(name string, ip netip.Addr, until, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[netip.Addr]map[string]time.Time{}
	}
	if _, known := n.all[ip][name]; !known {
		if n.n >= maxNames {
			n.forget(now)
		}
		if n.all[ip] == nil {
			n.all[ip] = map[string]time.Time{}
		}
		n.n++
	}
	n.all[ip][name] = until
	n.noted++
}

// forget makes room: what has ended, or, if nothing has, what ends first.
func (n *names) forget(now time.Time) {
	var first netip.Addr
	var called string
	var at time.Time
	for ip, all := range n.all {
		for name, end := range all {
			if end.Before(now) {
				n.remove(ip, name)
			} else if at.IsZero() || end.Before(at) {
				first, called, at = ip, name, end
			}
		}
	}
	if n.n >= maxNames {
		n.remove(first, called)
	}
}

func (n *names) remove(ip netip.Addr, name string) {
	delete(n.all[ip], name)
	if len(n.all[ip]) == 0 {
		delete(n.all, ip)
	}
	n.n--
}

// of returns the names that an address was given for.
func (n *names) of(ip netip.Addr) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for name, end := range n.all[ip] {
		if now.Before(end) {
			out = append(out, name)
		}
	}
	return out
}

// Known is a name that an address was given for, until when that counts.
type Known struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
}

// Known returns the names that count, in no order, and a number that is another when some were added.
func (s *Stack) Known() (all []Known, added int64) {
	n := &s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for ip, of := range n.all {
		for name, end := range of {
			if now.Before(end) {
				all = append(all, Known{name, ip, end})
			}
		}
	}
	return all, n.noted
}

// Recall has names count that did in a stack before this one, of the same guest. What is no such name is
// passed over, and what is too much.
func (s *Stack) Recall(all []Known) {
	now := time.Now()
	most := now.Add(mostKept)
	for _, one := range all[:min(len(all), maxNames)] {
		name, ok := canonical(one.Name)
		if !ok || name != one.Name || !one.Address.Is4() || !now.Before(one.Until) {
			continue
		}
		if one.Until.After(most) {
			one.Until = most
		}
		s.names.keep(name, one.Address, one.Until, now)
	}
}
