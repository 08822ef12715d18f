package netstack

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxNames  = 4096             // remembered; the one that expires first is evicted
	leastKept = 10 * time.Minute // minimum lifetime of an answer: programs cache addresses
	mostKept  = 24 * time.Hour
)

// names remembers which names the resolver returned an address for.
type names struct {
	mu  sync.Mutex
	all map[netip.Addr]map[string]time.Time // expiry
	n   int

	noted int64 // number of additions
}

// note remembers an answer for its time to live, within bounds.
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

// forget makes room: it removes expired entries, or else the one that expires first.
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

// of returns the names that resolved to an address.
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

// Known is a name, the address that it resolved to, and its expiry.
type Known struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
}

// Known returns the names that are valid, in no order. added changes when names are added.
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

// Recall restores names of an earlier stack of the same guest. It skips invalid
// entries and those beyond the limit.
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
