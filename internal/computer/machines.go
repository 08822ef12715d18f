package computer

import (
	"context"
	"sync"
	"time"

	"holt"
)

// machines are the places of computers in memory: each has a lock, and a machine
// while one runs. A computer that needs neither has none.
type machines struct {
	idle notification // there may be something to do at computers that rest

	mu   sync.Mutex
	set  map[holt.ComputerID]*slot
	came chan struct{} // closed when a computer gets a machine
}

type slot struct {
	lock  chan struct{} // holds one token while a verb is at work
	users int           // holders and waiters of lock
	yield func()        // asks the holder to make room; nil: it is at work for somebody
	verb  string        // the holder's; "" while there is none, or one that yields
	since time.Time     // it has had the lock
	live  *live         // nil while no machine runs
}

func newMachines() *machines {
	return &machines{idle: newNotification(), set: map[holt.ComputerID]*slot{}, came: make(chan struct{})}
}

// coming returns a channel that is closed when any computer next gets a machine.
func (s *machines) coming() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came
}

// live returns the running machine of a computer, or nil.
func (s *machines) live(id holt.ComputerID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.set[id]; slot != nil {
		return slot.live
	}
	return nil
}

// put publishes a computer's machine; nil: it has none.
func (s *machines) put(id holt.ComputerID, l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(id).live = l
	s.tidy(id)
	if l != nil {
		close(s.came)
		s.came = make(chan struct{})
	}
}

// lock waits for a computer's lock. Who waits for the holder is told its verb, see [idempotency.WithMethod].
func (s *machines) lock(ctx context.Context, id holt.ComputerID) (unlock func(), err error) {
	slot := s.enter(id)
	s.mu.Lock()
	yield := slot.yield
	s.mu.Unlock()
	if yield != nil {
		yield()
	}
	select {
	case slot.lock <- struct{}{}:
		return s.hold(ctx, id, slot), nil
	case <-ctx.Done():
		err := s.lockTimeout(ctx, id)
		s.leave(id, slot)
		return nil, err
	}
}

// settled waits for the verb that is at work on a computer. Quiet work goes on: who only
// looks does not ask it to yield.
func (s *machines) settled(ctx context.Context, id holt.ComputerID) error {
	s.mu.Lock()
	slot := s.set[id]
	quiet := slot == nil || len(slot.lock) == 0 || slot.yield != nil
	s.mu.Unlock()
	if quiet {
		return nil
	}
	unlock, err := s.lock(ctx, id)
	if err == nil {
		unlock()
	}
	return err
}

// tryLock takes a computer's lock if it is free.
func (s *machines) tryLock(ctx context.Context, id holt.ComputerID) (unlock func(), ok bool) {
	slot := s.enter(id)
	select {
	case slot.lock <- struct{}{}:
		return s.hold(ctx, id, slot), true
	default:
		s.leave(id, slot)
		return nil, false
	}
}

// wanted says whether somebody waits for a computer's lock, which is held.
func (s *machines) wanted(id holt.ComputerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.set[id]
	return slot != nil && slot.users > 1
}

// tryQuiet is tryLock for work that nobody waits for, at a computer that has no
// machine, unless it may run. Whoever wants the lock then calls yield first, if that is not nil. It
// ends without a word to those who wait for computers to rest.
func (s *machines) tryQuiet(id holt.ComputerID, running bool, yield func()) (unlock func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.at(id)
	if slot.live != nil && !running || slot.users > 0 {
		return nil, false
	}
	slot.users++
	slot.lock <- struct{}{} // nobody has it
	slot.yield = yield
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		slot.yield = nil
		<-slot.lock
		if slot.users--; slot.users == 0 && slot.live == nil {
			delete(s.set, id)
		}
	}, true
}

// enter keeps a slot in place until leave.
func (s *machines) enter(id holt.ComputerID) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.at(id)
	slot.users++
	return slot
}

func (s *machines) leave(id holt.ComputerID, slot *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.users--
	s.tidy(id)
}

// clear takes all machines off their machines.
func (s *machines) clear() (all []*live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.set {
		if slot.live != nil {
			all = append(all, slot.live)
			slot.live = nil
		}
	}
	return all
}

// at returns a computer's slot, a new one if need be. mu is held.
func (s *machines) at(id holt.ComputerID) *slot {
	if s.set[id] == nil {
		s.set[id] = &slot{lock: make(chan struct{}, 1)}
	}
	return s.set[id]
}

// tidy drops a slot that nobody needs. mu is held.
func (s *machines) tidy(id holt.ComputerID) {
	if slot := s.set[id]; slot.users == 0 && slot.live == nil {
		delete(s.set, id)
		s.idle.notify()
	}
}
