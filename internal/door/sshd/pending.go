package sshd

import (
	"io"
	"net/netip"
	"slices"
	"sync"
)

// pendings is the set of connections that are not authenticated. The zero value is ready to use.
type pendings struct {
	mu  sync.Mutex
	all []*pending // oldest first
}

type pending struct {
	at   string // see place
	site string // see site
	conn io.Closer
	gone bool // closed to make room for another
}

// enter adds a connection until left is called, which reports whether it was closed to make room. ok is false if there
// are too many of its address. If there are too many in all, enter closes the oldest of the site with the most, so that a
// site with many connections displaces only its own.
func (p *pendings) enter(at string, conn io.Closer) (left func() (gone bool), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	here, sites := 0, map[string]int{}
	for _, one := range p.all {
		if one.at == at {
			here++
		}
		sites[one.site]++
	}
	if here >= mostPendingOf {
		return nil, false
	}
	if len(p.all) >= mostPending {
		most := 0
		for i, one := range p.all {
			if sites[one.site] > sites[p.all[most].site] {
				most = i
			}
		}
		p.all[most].gone = true
		_ = p.all[most].conn.Close()
		p.all = slices.Delete(p.all, most, most+1)
	}
	mine := &pending{at: at, site: site(at), conn: conn}
	p.all = append(p.all, mine)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.all, mine); i >= 0 {
			p.all = slices.Delete(p.all, i, i+1)
		}
		return mine.gone
	}, true
}

// site returns the network that likely has one owner: a /48 of IPv6, a /24 of IPv4.
func site(at string) string {
	of, err := netip.ParsePrefix(at)
	if ip, one := netip.ParseAddr(at); one == nil {
		of, err = ip.Prefix(24)
	} else if err == nil {
		of, err = of.Addr().Prefix(48)
	}
	if err != nil {
		return at
	}
	return of.String()
}
