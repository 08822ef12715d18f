package netstack

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxNames  = 4096             // that are remembered; beyond that the first to expire are forgotten
	leastKept = 10 * time.Minute // minimum lifetime of a name, whatever its TTL, since clients keep addresses for longer
	mostKept  = 24 * time.Hour
)

// names remembers the names for which the resolver returned an address.
type names struct {
	mu  sync.Mutex
	all map[netip.Addr]map[string]time.Time // expiry by address and name
	n   int

	noted int64 // number of calls of keep
}

// note remembers an answer for its TTL, within the limits above.
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

// forget removes the expired names or, if there are none, the first to expire.
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

// of returns the names of an address that have not expired.
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

// Known is a name, an address that the resolver returned for it, and their expiry.
type Known struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
}

// Known returns the names that have not expired, in no order, and a counter that changes when names are added.
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

// Recall adds names of a former stack of the same guest. It skips invalid names, and those beyond the maximum.
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
