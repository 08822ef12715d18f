package sshd

import (
	"io"
	"net/netip"
	"slices"
	"sync"
)

// pendings are the connections that are not authenticated. The zero value is ready.
type pendings struct {
	mu  sync.Mutex
	all []*pending // the one that waits for longest first
}

type pending struct {
	at   string // see place
	site string // see site
	conn io.Closer
	gone bool // for another
}

// enter counts a connection until left is called, which says whether it has gone for another; false: there are too many of
// its address. Where there are too many of all, the one goes that waits for longest of the site with most: who opens many
// keeps nobody out but their own.
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

// site is what one owner of addresses is likely to have all of: of IPv6 a /48, of IPv4 a /24.
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
