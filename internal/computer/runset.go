package computer

import (
	"context"
	"maps"
	"slices"
	"sync"

	"holt"
)

// runSet is what memory knows of one machine's runs.
type runSet struct {
	launches launches[holt.RunID]

	mu       sync.Mutex
	here     map[holt.RunID]bool          // that were started here, by this daemon or one before it, as far as was asked
	of       map[holt.RunID]string        // the schedules of those that were started by one
	open     map[holt.RunID]bool          // that the guest has, and that are not known to have ended
	settling map[holt.RunID]chan struct{} // that have ended; closed when the workspace has what they changed
	left     map[holt.RunID]bool          // that have ended, and whose output may be in the guest only

	owed   notification  // there may be a new one of these
	taking chan struct{} // holds one while output is taken
}

func newRunSet() *runSet {
	return &runSet{here: map[holt.RunID]bool{}, of: map[holt.RunID]string{}, open: map[holt.RunID]bool{},
		settling: map[holt.RunID]chan struct{}{}, left: map[holt.RunID]bool{},
		owed: newNotification(), taking: make(chan struct{}, 1)}
}

// claim records that a run is being started, see [launches.claim].
func (s *runSet) claim(run holt.Run) (launched func()) {
	s.know(run.ID, run.Schedule)
	return s.launches.claim(run.ID)
}

// opened records that the guest has a run that is not known to have ended.
func (s *runSet) opened(id holt.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = true
}

// ended records that a run has ended. It returns what to call once it is settled; nil if another
// caller settles it.
func (s *runSet) ended(id holt.RunID) (settled func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
	if s.settling[id] != nil {
		return nil
	}
	done := make(chan struct{})
	s.settling[id] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.settling, id)
		close(done)
	}
}

// unsettled returns a channel for each run that has ended and is not settled.
func (s *runSet) unsettled() []chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.settling))
}

// all returns the open runs.
func (s *runSet) all() []holt.RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.open))
}

// know records that a run was started here, and by which schedule.
func (s *runSet) know(id holt.RunID, schedule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.here[id] = true; schedule != "" {
		s.of[id] = schedule
	}
}

// forget records that runs are not on record any more.
func (s *runSet) forget(ids []holt.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.here, id)
		delete(s.of, id)
	}
}

// known reports whether a run is known to have been started here, and by which schedule.
func (s *runSet) known(id holt.RunID) (schedule string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[id], s.here[id]
}

// owe records that the output of an ended run has to be saved.
func (s *runSet) owe(id holt.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[id] = true
	s.owed.notify()
}

// untaken returns the runs whose output has to be saved.
func (s *runSet) untaken() []holt.RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.left))
}

// took records that it was tried.
func (s *runSet) took(id holt.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, id)
}

// take waits until no other output is being saved, and excludes others until done is called.
func (s *runSet) take(ctx context.Context) (done func(), err error) {
	select {
	case s.taking <- struct{}{}:
		return func() { <-s.taking }, nil
	case <-ctx.Done():
		return nil, gone(ctx)
	}
}
