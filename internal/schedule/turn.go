package schedule

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"holt"
)

const (
	wakesAtOnce = 4                // how many computers are woken at a time
	downMost    = 10 * time.Minute // for which one is left alone that did not come up; roomEvery at first
)

// turns says which computers are woken now: each for one schedule at a time, so that one which does not come up keeps the
// others from no more than one turn of wakesAtOnce. Next is who belongs to the tenant with the fewest, and of those who has
// waited longest.
type turns struct {
	mu      sync.Mutex
	taken   []*turn
	waiting []*turn // who has waited longest first
	down    map[holt.ComputerID]down
}

type turn struct {
	tenant   string
	computer holt.ComputerID
	given    chan struct{} // closed once it is
}

// down is a computer that did not come up.
type down struct {
	why   error
	until time.Time // until then it is left alone
	wait  time.Duration
}

// take waits for a turn of a computer. end ends it.
func (t *turns) take(ctx context.Context, c holt.Computer) (end func(), err error) {
	mine := &turn{c.Tenant, c.ID, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	t.give()
	t.mu.Unlock()
	select {
	case <-mine.given:
		return func() { t.end(mine) }, nil
	case <-ctx.Done():
		t.end(mine)
		return nil, context.Cause(ctx)
	}
}

// end ends a turn, or the wait for one.
func (t *turns) end(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := func(one *turn) bool { return one == mine }
	t.taken, t.waiting = slices.DeleteFunc(t.taken, is), slices.DeleteFunc(t.waiting, is)
	t.give()
}

// give gives the turns that are free. The lock is held.
func (t *turns) give() {
	for len(t.taken) < wakesAtOnce {
		next, fewest := -1, wakesAtOnce
		for i, one := range t.waiting {
			if n, ok := t.before(one); ok && n < fewest {
				next, fewest = i, n
			}
		}
		if next < 0 {
			return
		}
		close(t.waiting[next].given)
		t.taken = append(t.taken, t.waiting[next])
		t.waiting = slices.Delete(t.waiting, next, next+1)
	}
}

// before counts the turns that the tenant of one that waits has; false if its computer has one. The lock is held.
func (t *turns) before(one *turn) (n int, ok bool) {
	for _, other := range t.taken {
		if other.computer == one.computer {
			return 0, false
		}
		if other.tenant == one.tenant {
			n++
		}
	}
	return n, true
}

// ended remembers of a computer whether it has come up. That there is no room for it says nothing about that.
func (t *turns) ended(id holt.ComputerID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(t.down, func(_ holt.ComputerID, d down) bool { return now.Sub(d.until) > roomWait })
	switch code := holt.CodeOf(err); {
	case err == nil:
		delete(t.down, id)
	case code == holt.Unavailable || code == holt.Timeout:
		wait := min(max(2*t.down[id].wait, roomEvery), downMost)
		t.down[id] = down{err, now.Add(wait), wait}
	}
}

// leave returns why a computer did not come up, while it is left alone for that.
func (t *turns) leave(id holt.ComputerID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := t.down[id]; ok && time.Now().Before(d.until) {
		return d.why
	}
	return nil
}
