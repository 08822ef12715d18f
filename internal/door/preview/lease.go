package preview

import (
	"context"
	"sync"
	"time"

	"holt"
)

// A query of the control database takes longer than forwarding a request. So the site of a host is cached for a short
// time, and similar requests share the mark of a use.
const (
	siteCacheFor = time.Second
	mostSites    = 4096
	leaseFor     = time.Second // after the last request
)

// sites caches the sites of hosts. It does not cache rights. That a computer has been paused since is noticed when the
// door connects to it.
type sites struct {
	mu  sync.Mutex
	set map[string]siteEntry
}

type siteEntry struct {
	site
	until time.Time
}

// cachedSite is site with the cache.
func (d *Door) cachedSite(ctx context.Context, host string) (site, bool, error) {
	if _, ok := ParseHost(host, d.store.cfg.Place.Domain); !ok && addressOf(host) == 0 { // a domain, which can move to another computer
		return d.site(ctx, host)
	}
	return d.sites.get(host, func() (site, bool, error) { return d.site(ctx, host) })
}

func (s *sites) get(host string, ask func() (site, bool, error)) (site, bool, error) {
	now := time.Now()
	s.mu.Lock()
	one, ok := s.set[host]
	s.mu.Unlock()
	if ok && now.Before(one.until) {
		return one.site, true, nil
	}
	is, found, err := ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.set, host); err != nil || !found || is.computer.State != holt.ComputerRunning {
		return is, found, err
	}
	if s.set == nil || len(s.set) >= mostSites {
		s.set = map[string]siteEntry{}
	}
	s.set[host] = siteEntry{is, now.Add(siteCacheFor)}
	return is, found, nil
}

// leases are the marks of uses that requests share.
type leases struct {
	mu  sync.Mutex
	set map[leaseKey]*lease
}

type leaseKey struct {
	computer holt.ComputerID
	port     int
	how      admission
}

type lease struct {
	requests int
	done     func()
	over     *time.Timer
}

// take shares a mark, or makes one by mark. The caller calls left at the end of the request.
func (l *leases) take(key leaseKey, mark func() (done func(), err error)) (left func(), err error) {
	l.mu.Lock()
	if one := l.set[key]; one != nil {
		defer l.mu.Unlock()
		one.requests++
		one.over.Stop()
		return sync.OnceFunc(func() { l.leave(one) }), nil
	}
	l.mu.Unlock()
	done, err := mark()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set[key] != nil { // another request was faster
		return done, nil
	}
	if l.set == nil {
		l.set = map[leaseKey]*lease{}
	}
	one := &lease{requests: 1, done: done}
	one.over = time.AfterFunc(time.Hour, func() { l.expire(key, one) })
	one.over.Stop()
	l.set[key] = one
	return sync.OnceFunc(func() { l.leave(one) }), nil
}

func (l *leases) leave(one *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.requests--; one.requests == 0 {
		one.over.Reset(leaseFor)
	}
}

func (l *leases) expire(key leaseKey, one *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.requests == 0 && l.set[key] == one {
		delete(l.set, key)
		one.done()
	}
}

// end ends all marks, after all requests.
func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, one := range l.set {
		one.over.Stop()
		delete(l.set, key)
		one.done()
	}
}
