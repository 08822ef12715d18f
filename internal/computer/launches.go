package computer

import (
	"slices"
	"sync"
)

// launches is what is being started in one machine's guest: one that is asked what it has meanwhile may tell nothing
// of that, and what it tells nothing of is otherwise lost.
type launches[ID comparable] struct {
	mu    sync.Mutex
	going map[ID]int
	asked map[*question[ID]]bool
}

// question is one to a guest about what it has.
type question[ID comparable] struct {
	of     *launches[ID]
	about  []ID        // what it is about; all if none
	missed map[ID]bool // of that what it may have had to tell nothing of
}

// claim says that one of this id is about to be started, and on record as going on; launched, that it was or was not.
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

// claimed says whether one is being started.
func (s *launches[ID]) claimed(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.going[id] > 0
}

// ask begins a question about some or all, before the guest is asked, which done ends.
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

// lost says whether what the guest told nothing of is not there. It is asked in the transaction that writes so: who
// claims an id, and then puts on record that it goes on, is right after either of them.
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
