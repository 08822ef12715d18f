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
	wakesAtOnce = 4                // computers that are woken at a time
	downMost    = 10 * time.Minute // longest pause after a computer failed to wake; the first is roomEvery
)

// slots is a semaphore of wakesAtOnce computers that are woken at a time. A computer holds at most one slot, so one that
// fails to wake delays the others by one slot only. The next slot goes to the tenant that holds the fewest, and there
// to the firing that has waited longest.
type slots struct {
	mu      sync.Mutex
	held    []*slot
	waiting []*slot // longest wait first
	down    map[holt.ComputerID]down
}

type slot struct {
	tenant   string
	computer holt.ComputerID
	granted  chan struct{} // closed when the slot is granted
}

// down is a computer that failed to wake.
type down struct {
	why   error
	until time.Time // no further try before
	wait  time.Duration
}

// acquire waits for a slot for a computer. end releases it.
func (t *slots) acquire(ctx context.Context, c holt.Computer) (end func(), err error) {
	mine := &slot{c.Tenant, c.ID, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	t.grant()
	t.mu.Unlock()
	select {
	case <-mine.granted:
		return func() { t.release(mine) }, nil
	case <-ctx.Done():
		t.release(mine)
		return nil, context.Cause(ctx)
	}
}

// release releases a slot, or ends the wait for one.
func (t *slots) release(mine *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := func(one *slot) bool { return one == mine }
	t.held, t.waiting = slices.DeleteFunc(t.held, is), slices.DeleteFunc(t.waiting, is)
	t.grant()
}

// grant grants the free slots. t.mu is held.
func (t *slots) grant() {
	for len(t.held) < wakesAtOnce {
		next, fewest := -1, wakesAtOnce
		for i, one := range t.waiting {
			if n, ok := t.heldBy(one); ok && n < fewest {
				next, fewest = i, n
			}
		}
		if next < 0 {
			return
		}
		close(t.waiting[next].granted)
		t.held = append(t.held, t.waiting[next])
		t.waiting = slices.Delete(t.waiting, next, next+1)
	}
}

// heldBy returns the number of slots of one's tenant; false if one's computer has a slot. t.mu is held.
func (t *slots) heldBy(one *slot) (n int, ok bool) {
	for _, other := range t.held {
		if other.computer == one.computer {
			return 0, false
		}
		if other.tenant == one.tenant {
			n++
		}
	}
	return n, true
}

// record records whether a computer failed to wake. A lack of room is no such failure.
func (t *slots) record(id holt.ComputerID, err error) {
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

// failure returns the error of a computer that failed to wake, until it may be tried again.
func (t *slots) failure(id holt.ComputerID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := t.down[id]; ok && time.Now().Before(d.until) {
		return d.why
	}
	return nil
}
