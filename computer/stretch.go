package computer

import (
	"sync"
	"time"

	"holt"
)

// stretches divides what a machine's terminals change into stretches of work. Each
// begins and ends with a checkpoint, so that it can be undone as one, as a run can.
// One stretch is that of all terminals, and each has its own share of it: however
// many terminals a guest says it has, it makes no more checkpoints than these
// times allow. It is not on record: what a daemon after this one is told of is a new one.
type stretches struct {
	limits Limits                                              // Quiet, Stretch and Leave
	begin  func(terminal string) (checkpoint int64, err error) // takes the checkpoint before one
	end    func(by map[holt.StretchID]string)                  // takes the one after it, without waiting; by terminals of these names
	now    func() time.Time

	mu       sync.Mutex
	open     *stretch // nil: nothing was changed of late
	attached map[holt.TerminalID]int
}

type stretch struct {
	checkpoint  int64 // that it began with; 0: there was no room for one, so it cannot be undone
	begun, last time.Time
	by          map[holt.TerminalID]string // who changed something in it, and their names
	left        bool                       // the last one has left one of them
}

func newStretches(limits Limits, begin func(string) (int64, error), end func(map[holt.StretchID]string)) *stretches {
	return &stretches{limits: limits, begin: begin, end: end, now: time.Now, attached: map[holt.TerminalID]int{}}
}

// over says whether what comes now is not part of the open stretch.
func (s *stretches) over(now time.Time) bool {
	quiet := now.Sub(s.open.last)
	return quiet >= s.limits.Quiet || s.open.left && quiet >= s.limits.Leave || now.Sub(s.open.begun) >= s.limits.Stretch
}

// changes says that a terminal is about to change something, and returns the
// stretch that the change belongs to; "" if that could get no checkpoint.
func (s *stretches) changes(id holt.TerminalID, name string) holt.StretchID {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.open != nil && s.over(now) {
		s.finish()
	}
	if s.open == nil {
		checkpoint, err := s.begin(name)
		if err != nil {
			checkpoint = 0
		}
		s.open = &stretch{checkpoint: checkpoint, begun: now, by: map[holt.TerminalID]string{}}
	}
	s.open.last, s.open.by[id] = now, name
	if s.open.checkpoint == 0 {
		return ""
	}
	return holt.NewStretchID(id, s.open.checkpoint)
}

// tick ends a stretch whose time is over.
func (s *stretches) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil && s.over(s.now()) {
		s.finish()
	}
}

// finish ends the open stretch. mu is held.
func (s *stretches) finish() {
	by := map[holt.StretchID]string{}
	for id, name := range s.open.by {
		by[holt.NewStretchID(id, s.open.checkpoint)] = name
	}
	if s.open.checkpoint != 0 {
		s.end(by)
	}
	s.open = nil
}

// rest ends the open stretch without a checkpoint: the caller takes one.
func (s *stretches) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = nil
}

// attach says that somebody is attached to a terminal, until leave is called.
func (s *stretches) attach(id holt.TerminalID) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached[id]++; s.open != nil {
		s.open.left = false
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.attached[id]--; s.attached[id] > 0 {
			return
		}
		delete(s.attached, id)
		if s.open == nil {
			return
		}
		if _, ok := s.open.by[id]; ok {
			s.open.left = true
		}
	}
}
