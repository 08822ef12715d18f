package db

import (
	"context"
	"slices"
	"sync"

	"holt"
)

// Turns is a semaphore for users' queries. It limits how many run at once, in
// all, for each tenant, and for each object, so that slow queries of one tenant
// do not block the others. One place is reserved for admins.
type Turns struct {
	Most     int // queries at once, plus one for admins
	OfTenant int // queries at once of one tenant; admins have no such limit
	OfOne    int // queries at once of one object

	mu      sync.Mutex
	n       int
	of      map[string]int // by tenant
	waiting map[string]int // by tenant
	about   map[string]int
	ended   chan struct{} // closed when a query ends, if one waits
}

// mostWaiting is the number of queries of a tenant that may wait.
const mostWaiting = 8

// question is a query that runs or waits.
type question struct {
	tenant string // "" for admins
	about  []string
}

// Take waits until a query of ctx's actor about some objects may run. Call end when it has run.
//
// Errors: Timeout (ctx has ended), TooMany (too many queries of the tenant wait).
func (t *Turns) Take(ctx context.Context, about ...string) (end func(), err error) {
	q := question{about: slices.Compact(slices.Sorted(slices.Values(about)))} // a query may name several states of one object
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		q.tenant = a.Tenant
	}
	ended, err := t.first(q)
	if err != nil {
		return nil, err
	}
	if ended != nil {
		defer t.waits(q, -1)
	}
	for ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, holt.Errorf(holt.Timeout, "the query was cancelled while it waited for other queries: %w", context.Cause(ctx))
		}
		ended = t.again(q)
	}
	return func() { t.end(q) }, nil
}

// first is the first attempt. If it fails the query is counted as waiting.
func (t *Turns) first(q question) (ended chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended = t.try(q); ended == nil {
		return nil, nil
	}
	if q.tenant != "" && t.waiting[q.tenant] >= mostWaiting {
		return nil, holt.Errorf(holt.TooMany, "too many queries: %d queries of this tenant are waiting already", mostWaiting).
			WithHint("try again later: at most %d queries of a tenant run at once", t.OfTenant)
	}
	tally(&t.waiting, q.tenant, 1)
	return ended, nil
}

func (t *Turns) again(q question) (ended chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.try(q)
}

// try takes a turn and returns nil, or returns a channel that is closed when to retry. mu is held.
func (t *Turns) try(q question) (ended chan struct{}) {
	most := t.Most
	if q.tenant == "" {
		most++
	}
	if t.n >= most || q.tenant != "" && t.of[q.tenant] >= t.OfTenant || slices.ContainsFunc(q.about, func(one string) bool { return t.about[one] >= t.OfOne }) {
		if t.ended == nil {
			t.ended = make(chan struct{})
		}
		return t.ended
	}
	t.counts(q, 1)
	return nil
}

func (t *Turns) waits(q question, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tally(&t.waiting, q.tenant, by)
}

func (t *Turns) end(q question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts(q, -1)
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// counts adds by to the counts of a running query. mu is held.
func (t *Turns) counts(q question, by int) {
	t.n += by
	tally(&t.of, q.tenant, by)
	for _, one := range q.about {
		tally(&t.about, one, by)
	}
}

// tally adds by to all[one] and removes zero counts.
func tally(all *map[string]int, one string, by int) {
	if *all == nil {
		*all = map[string]int{}
	}
	if (*all)[one] += by; (*all)[one] == 0 {
		delete(*all, one)
	}
}
