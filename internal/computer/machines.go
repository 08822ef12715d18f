package computer

import (
	"context"
	"sync"
	"time"

	"holt"
)

// machines holds the lock and the running machine of each computer. A computer that needs neither
// has no slot.
type machines struct {
	idle notification // there may be something to do at computers that rest

	mu   sync.Mutex
	set  map[holt.ComputerID]*slot
	came chan struct{} // closed when a computer gets a machine
}

type slot struct {
	lock  chan struct{} // holds one token while a verb is at work
	users int           // holders and waiters of lock
	yield func()        // asks background work to end; nil: a call holds the lock
	verb  string        // the holder's; "" while there is none, or one that yields
	since time.Time     // it has had the lock
	live  *live         // nil while no machine runs
}

func newMachines() *machines {
	return &machines{idle: newNotification(), set: map[holt.ComputerID]*slot{}, came: make(chan struct{})}
}

// coming returns a channel that is closed when any computer gets a machine.
func (s *machines) coming() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came
}

// live returns the machine of a computer, or nil.
func (s *machines) live(id holt.ComputerID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.set[id]; slot != nil {
		return slot.live
	}
	return nil
}

// put publishes the machine of a computer; nil removes it.
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

// lock waits for the lock of a computer. The holder is named by its method, see
// [idempotency.WithMethod].
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

// settled waits for the verb at work on a computer, but not for background work.
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

// wanted reports whether somebody waits for a computer's lock, which is held.
func (s *machines) wanted(id holt.ComputerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.set[id]
	return slot != nil && slot.users > 1
}

// tryQuiet is tryLock for background work. It fails if the computer has a machine and running is
// false. A caller that wants the lock meanwhile calls yield first, unless that is nil.
func (s *machines) tryQuiet(id holt.ComputerID, running bool, yield func()) (unlock func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.at(id)
	if slot.live != nil && !running || slot.users > 0 {
		return nil, false
	}
	slot.users++
	slot.lock <- struct{}{} // it is free
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

// enter keeps a slot until leave.
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

// clear removes and returns all machines.
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

// at returns the slot of a computer, a new one if necessary. mu is held.
func (s *machines) at(id holt.ComputerID) *slot {
	if s.set[id] == nil {
		s.set[id] = &slot{lock: make(chan struct{}, 1)}
	}
	return s.set[id]
}

// tidy drops an unused slot. mu is held.
func (s *machines) tidy(id holt.ComputerID) {
	if slot := s.set[id]; slot.users == 0 && slot.live == nil {
		delete(s.set, id)
		s.idle.notify()
	}
}
