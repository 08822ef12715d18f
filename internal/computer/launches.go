package computer

import (
	"slices"
	"sync"
)

// launches is what is being started in a guest: the guest may not know it yet, and what the guest
// does not know is otherwise marked as lost.
type launches[ID comparable] struct {
	mu    sync.Mutex
	going map[ID]int
	asked map[*question[ID]]bool
}

// question is a request to a guest about what it has.
type question[ID comparable] struct {
	of     *launches[ID]
	about  []ID        // what it is about; all if none
	missed map[ID]bool // of that what it may have had to tell nothing of
}

// claim records that an id is about to be started, until launched is called.
func (s *launches[ID]) claim(id ID) (launched func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.going == nil {
		s.going = map[ID]int{}
	}
	s.going[id]++
	for q := range s.asked {
		q.miss(id)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.going[id]--; s.going[id] == 0 {
			delete(s.going, id)
		}
	}
}

// claimed reports whether an id is being started.
func (s *launches[ID]) claimed(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.going[id] > 0
}

// ask begins a question about some or all ids, before the guest is asked; done ends it.
func (s *launches[ID]) ask(about ...ID) *question[ID] {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &question[ID]{of: s, about: about, missed: map[ID]bool{}}
	for id := range s.going {
		q.miss(id)
	}
	if s.asked == nil {
		s.asked = map[*question[ID]]bool{}
	}
	s.asked[q] = true
	return q
}

// miss is called with the lock held.
func (q *question[ID]) miss(id ID) {
	if len(q.about) == 0 || slices.Contains(q.about, id) {
		q.missed[id] = true
	}
}

// lost reports whether an id that the guest does not know is lost. It is called in the transaction
// that records it: a start that claims the id, and then records it, comes before or after.
func (q *question[ID]) lost(id ID) bool {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	return !q.missed[id]
}

func (q *question[ID]) done() {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	delete(q.of.asked, q)
}
