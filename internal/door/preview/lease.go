package preview

import (
	"context"
	"sync"
	"time"

	"holt"
)

// Requests come in hundreds, and each asking of the control database takes longer than passing one on. So what a host
// shows is believed for a snapshot, and requests that are alike share the mark of a use.
const (
	believed  = time.Second
	mostSites = 4096
	leaseFor  = time.Second // after the last request
)

// sites are what hosts showed a moment ago. Who may see it is looked up each time; that a computer has been paused
// since is found when it is connected to.
type sites struct {
	mu  sync.Mutex
	set map[string]believedSite
}

type believedSite struct {
	site
	until time.Time
}

// siteNow is site, as it was a moment ago.
func (d *Door) siteNow(ctx context.Context, host string) (site, bool, error) {
	if _, ok := ParseHost(host, d.store.cfg.Place.Domain); !ok && addressOf(host) == 0 { // a domain, which may be another's at once
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
		s.set = map[string]believedSite{}
	}
	s.set[host] = believedSite{is, now.Add(believed)}
	return is, found, nil
}

// leases are marks of uses that requests share.
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

// take shares a mark, or makes one. The request's end calls left.
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
	if l.set[key] != nil { // another's came first
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

// end ends all, when nothing is open any more.
func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, one := range l.set {
		one.over.Stop()
		delete(l.set, key)
		one.done()
	}
}
