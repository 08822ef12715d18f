package db

import (
	"context"
	"slices"
	"sync"

	"holt"
)

// Turns has the questions of users wait for each other: a few run at once, fewer of any one tenant and about any one
// thing, so that nobody's long ones hold up all others. What all tenants ask together leaves an admin one.
type Turns struct {
	Most     int // at once, and one more of an admin's
	OfTenant int // of them of one tenant but an admin's
	OfOne    int // of them about one thing

	mu      sync.Mutex
	n       int
	of      map[string]int // by tenant
	waiting map[string]int // likewise
	about   map[string]int
	ended   chan struct{} // closed when one ends, if somebody waits
}

// mostWaiting is how many questions of a tenant may wait.
const mostWaiting = 8

// question is one that runs, or waits.
type question struct {
	tenant string // "": an admin
	about  []string
}

// Take waits until a question of ctx's actor about some things may run. end ends it.
//
// Errors: Timeout (ctx has ended), TooMany (others of the tenant wait).
func (t *Turns) Take(ctx context.Context, about ...string) (end func(), err error) {
	q := question{about: slices.Compact(slices.Sorted(slices.Values(about)))} // of one, several states may be asked
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
			return nil, holt.Errorf(holt.Timeout, "the query was given up while it waited for others: %w", context.Cause(ctx))
		}
		ended = t.again(q)
	}
	return func() { t.end(q) }, nil
}

// first is the first try; the question waits if it gets no turn.
func (t *Turns) first(q question) (ended chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended = t.try(q); ended == nil {
		return nil, nil
	}
	if q.tenant != "" && t.waiting[q.tenant] >= mostWaiting {
		return nil, holt.Errorf(holt.TooMany, "%d queries of the tenant wait already", mostWaiting).
			WithHint("come again when some have been answered: of a tenant %d run at once", t.OfTenant)
	}
	tally(&t.waiting, q.tenant, 1)
	return ended, nil
}

func (t *Turns) again(q question) (ended chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.try(q)
}

// try takes a turn and returns nil, or what is closed when it may be tried again. The lock is held.
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

// counts counts a question that runs. The lock is held.
func (t *Turns) counts(q question, by int) {
	t.n += by
	tally(&t.of, q.tenant, by)
	for _, one := range q.about {
		tally(&t.about, one, by)
	}
}

// tally adds to one of many; those that are 0 are not there.
func tally(all *map[string]int, one string, by int) {
	if *all == nil {
		*all = map[string]int{}
	}
	if (*all)[one] += by; (*all)[one] == 0 {
		delete(*all, one)
	}
}
