package job

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holt"
	"holt/machine"
)

// spareMB is what of its memory the host keeps when a job begins.
const spareMB = 256

// hostMemory is all that the host has, and what programs can still have of it, MiB.
func hostMemory() (total, free int) {
	all, available := machine.HostMemory()
	return int(all >> 20), int(available >> 20)
}

// room says why a job of that memory cannot begin now; "" if it can. A lone one always
// can: whether it really does its computer tells.
func (s *Store) room(memoryMB int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for _, w := range s.active {
		taken += w.memoryMB
	}
	total, free := s.cfg.Memory()
	switch {
	case time.Now().Before(s.until):
		return "the host had no room for another computer"
	case len(s.active) == 0:
		return ""
	case len(s.active) >= s.cfg.Most:
		return fmt.Sprintf("%d jobs run already", len(s.active))
	case taken+memoryMB > total/4*3:
		return fmt.Sprintf("jobs that run have %d MiB of memory already", taken)
	case free < memoryMB+spareMB:
		return "the host has too little memory left"
	}
	return ""
}

// dispatch begins jobs in the order in which they came, as there is room.
func (s *Store) dispatch() {
	for {
		wait, err := s.begin(s.ctx)
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("begin jobs", "err", err)
			wait = true
		}
		var later <-chan time.Time
		if wait {
			later = time.After(look)
		}
		select {
		case <-s.bell:
		case <-later:
		case <-s.ctx.Done():
			return
		}
	}
}

// mostWaiting is how many of the jobs that wait are looked at.
const mostWaiting = 128

// begin begins what can. wait says that something is left that only time makes room for.
func (s *Store) begin(ctx context.Context) (wait bool, err error) {
	list, err := s.table.list(ctx, `WHERE ended = 0 ORDER BY seq LIMIT ?`, mostWaiting+s.cfg.Most)
	if err != nil {
		return false, err
	}
	list = slices.DeleteFunc(list, func(r record) bool { return s.worker(r.ID) != nil })
	waiting := func(r record) bool { return r.State == holt.JobQueued && !r.cancelled }
	for _, r := range list { // what has begun needs no room
		if !waiting(r) && ctx.Err() == nil {
			s.take(r)
		}
	}
	for _, r := range slices.DeleteFunc(list, func(r record) bool { return !waiting(r) }) {
		if s.cfg.Computers.Draining() || ctx.Err() != nil {
			return true, nil
		}
		if why := s.room(r.Spec.MemoryMB); why != "" {
			return true, s.waits(ctx, r, why)
		}
		s.take(r)
	}
	return false, nil
}

// waits says of the job that is next why it waits.
func (s *Store) waits(ctx context.Context, r record, why string) error {
	if r.Reason == why {
		return nil
	}
	r.Reason = why
	return s.table.save(ctx, r)
}

// take gives a job to a worker of its own, unless it has one or the daemon ends.
func (s *Store) take(r record) {
	w := &worker{s: s, r: r, memoryMB: r.Spec.MemoryMB}
	w.ctx, w.cancel = context.WithCancelCause(s.ctx)
	if r.cancelled {
		w.cancel(errCancelled)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[r.ID] != nil || s.ctx.Err() != nil {
		w.cancel(nil)
		return
	}
	s.active[r.ID] = w
	s.wg.Go(func() {
		w.do()
		w.cancel(nil)
		s.mu.Lock()
		delete(s.active, r.ID)
		s.mu.Unlock()
		s.tell()
		s.ring()
	})
}

// stop ends a job that is marked as cancelled. One that waits is not left to its turn: that may be hours away.
func (s *Store) stop(r record) {
	s.mu.Lock()
	w := s.active[r.ID]
	s.mu.Unlock()
	if w != nil {
		w.cancel(errCancelled)
		return
	}
	r.cancelled = true
	s.take(r)
}

// pause lets no job begin for a while: the host had no room for one.
func (s *Store) pause(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}
