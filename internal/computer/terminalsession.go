package computer

import (
	"sync"
	"time"

	"holt"
)

// terminalSessions divides the changes that a machine's terminals make into sessions. A session
// begins and ends with a checkpoint, so that it can be undone as one, like a run. All terminals
// share one session, and each has its own id in it: a guest cannot cause more checkpoints than the
// time limits allow, whatever number of terminals it invents. Sessions are not on record; after a
// restart of the daemon a new one begins.
type terminalSessions struct {
	limits Limits                                         // Quiet, Stretch and Leave
	begin  func(id holt.StretchID, terminal string) error // takes the checkpoint before one, which that terminal begins
	end    func(by map[holt.StretchID]string)             // takes the one after it, without waiting; by terminals of these names
	now    func() time.Time

	mu       sync.Mutex
	open     *terminalSession // nil: nothing was changed of late
	attached map[holt.TerminalID]int
}

type terminalSession struct {
	loose       bool // it began without a checkpoint, since there was no room for one, and cannot be undone
	begun, last time.Time
	by          map[holt.TerminalID]share // the terminals with changes in it
	left        bool                      // the last one has left one of them
}

// share is one terminal's part of a session.
type share struct {
	id   holt.StretchID
	name string // of the terminal
}

func newTerminalSessions(limits Limits, begin func(holt.StretchID, string) error, end func(map[holt.StretchID]string)) *terminalSessions {
	return &terminalSessions{limits: limits, begin: begin, end: end, now: time.Now, attached: map[holt.TerminalID]int{}}
}

// over reports whether a change now belongs to a new session.
func (s *terminalSessions) over(now time.Time) bool {
	quiet := now.Sub(s.open.last)
	return quiet >= s.limits.Quiet || s.open.left && quiet >= s.limits.Leave || now.Sub(s.open.begun) >= s.limits.Stretch
}

// changes records that a terminal is about to change something, and returns the id of its part of
// the session; "" if there was no room for a checkpoint.
func (s *terminalSessions) changes(id holt.TerminalID, name string) holt.StretchID {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.open != nil && s.over(now) {
		s.finish()
	}
	if s.open == nil {
		first := share{holt.NewStretchID(id), name}
		s.open = &terminalSession{begun: now, by: map[holt.TerminalID]share{id: first}}
		s.open.loose = s.begin(first.id, name) != nil
	}
	mine, ok := s.open.by[id]
	if !ok {
		mine = share{holt.NewStretchID(id), name}
		s.open.by[id] = mine
	}
	s.open.last = now
	if s.open.loose {
		return ""
	}
	return mine.id
}

// tick ends a session whose time is over.
func (s *terminalSessions) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil && s.over(s.now()) {
		s.finish()
	}
}

// finish ends the open session. mu is held.
func (s *terminalSessions) finish() { s.cut()() }

// cut ends the open session, if there is one, and returns what takes the checkpoint after it. mu is
// held.
func (s *terminalSessions) cut() (end func()) {
	open := s.open
	s.open = nil
	if open == nil || open.loose {
		return func() {}
	}
	by := map[holt.StretchID]string{}
	for _, one := range open.by {
		by[one.id] = one.name
	}
	return func() { s.end(by) }
}

// rest ends the open session for a caller that is about to take a checkpoint, and that calls end if
// it takes none.
func (s *terminalSessions) rest() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut()
}

// attach records that a client is attached to a terminal until leave is called.
func (s *terminalSessions) attach(id holt.TerminalID) (leave func()) {
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
