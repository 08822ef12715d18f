package computer

import (
	"context"
	"sync"
	"time"

	"holt"
)

// seats are the places of computers in memory: each has a lock, and a machine
// while one runs. A computer that needs neither has none.
type seats struct {
	idle bell // there may be something to do at computers that rest

	mu   sync.Mutex
	set  map[holt.ComputerID]*seat
	came chan struct{} // closed when a computer gets a machine
}

type seat struct {
	lock  chan struct{} // holds one token while a verb is at work
	users int           // holders and waiters of lock
	yield func()        // asks the holder to make room; nil: it is at work for somebody
	verb  string        // the holder's; "" while there is none, or one that yields
	since time.Time     // it has had the lock
	live  *live         // nil while no machine runs
}

func newSeats() *seats {
	return &seats{idle: newBell(), set: map[holt.ComputerID]*seat{}, came: make(chan struct{})}
}

// coming returns a channel that is closed when any computer next gets a machine.
func (s *seats) coming() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came
}

// live returns the running machine of a computer, or nil.
func (s *seats) live(id holt.ComputerID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat := s.set[id]; seat != nil {
		return seat.live
	}
	return nil
}

// put publishes a computer's machine; nil: it has none.
func (s *seats) put(id holt.ComputerID, l *live) {
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
func (s *seats) lock(ctx context.Context, id holt.ComputerID) (unlock func(), err error) {
	seat := s.enter(id)
	s.mu.Lock()
	yield := seat.yield
	s.mu.Unlock()
	if yield != nil {
		yield()
	}
	select {
	case seat.lock <- struct{}{}:
		return s.hold(ctx, id, seat), nil
	case <-ctx.Done():
		err := s.outwaited(ctx, id)
		s.leave(id, seat)
		return nil, err
	}
}

// settled waits for the verb that is at work on a computer. Quiet work goes on: who only
// looks does not ask it to yield.
func (s *seats) settled(ctx context.Context, id holt.ComputerID) error {
	s.mu.Lock()
	seat := s.set[id]
	quiet := seat == nil || len(seat.lock) == 0 || seat.yield != nil
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
func (s *seats) tryLock(ctx context.Context, id holt.ComputerID) (unlock func(), ok bool) {
	seat := s.enter(id)
	select {
	case seat.lock <- struct{}{}:
		return s.hold(ctx, id, seat), true
	default:
		s.leave(id, seat)
		return nil, false
	}
}

// wanted says whether somebody waits for a computer's lock, which is held.
func (s *seats) wanted(id holt.ComputerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.set[id]
	return seat != nil && seat.users > 1
}

// tryQuiet is tryLock for work that nobody waits for, at a computer that has no
// machine, unless it may run. Whoever wants the lock then calls yield first, if that is not nil. It
// ends without a word to those who wait for computers to rest.
func (s *seats) tryQuiet(id holt.ComputerID, running bool, yield func()) (unlock func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.at(id)
	if seat.live != nil && !running || seat.users > 0 {
		return nil, false
	}
	seat.users++
	seat.lock <- struct{}{} // nobody has it
	seat.yield = yield
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		seat.yield = nil
		<-seat.lock
		if seat.users--; seat.users == 0 && seat.live == nil {
			delete(s.set, id)
		}
	}, true
}

// enter keeps a seat in place until leave.
func (s *seats) enter(id holt.ComputerID) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.at(id)
	seat.users++
	return seat
}

func (s *seats) leave(id holt.ComputerID, seat *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat.users--
	s.tidy(id)
}

// clear takes all machines off their seats.
func (s *seats) clear() (all []*live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seat := range s.set {
		if seat.live != nil {
			all = append(all, seat.live)
			seat.live = nil
		}
	}
	return all
}

// at returns a computer's seat, a new one if need be. mu is held.
func (s *seats) at(id holt.ComputerID) *seat {
	if s.set[id] == nil {
		s.set[id] = &seat{lock: make(chan struct{}, 1)}
	}
	return s.set[id]
}

// tidy drops a seat that nobody needs. mu is held.
func (s *seats) tidy(id holt.ComputerID) {
	if seat := s.set[id]; seat.users == 0 && seat.live == nil {
		delete(s.set, id)
		s.idle.ring()
	}
}
