package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"holt"
)

// room says why a job of that memory cannot begin now; "" if it can. A lone one always
// can: whether it really does its computer tells.
func (s *Store) room(ctx context.Context, memoryMB int) (why string, err error) {
	s.mu.Lock()
	begun := map[holt.JobID]int{}
	for id, w := range s.active {
		begun[id] = w.memoryMB
	}
	until, lacking := s.until, s.lacking
	s.mu.Unlock()
	switch {
	case time.Now().Before(until):
		return lacking, nil
	case len(begun) == 0:
		return "", nil
	case len(begun) >= s.cfg.Most:
		return holt.CountOf(len(begun), "job") + " at work already", nil
	}
	err = s.cfg.Computers.Room(ctx, memoryMB, begun)
	if holt.CodeOf(err) == holt.TooMany {
		return err.Error(), nil
	}
	return "", err
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
		if why, err := s.room(ctx, r.Spec.MemoryMB); why != "" || err != nil {
			return true, errors.Join(err, s.waits(ctx, r, cmp.Or(why, r.Reason)))
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
	w.ctx, w.cancel = context.WithCancelCause(holt.WithActor(s.ctx, holt.Actor{Tenant: cmp.Or(r.Tenant, holt.DefaultTenant)}))
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

// noRoom is why a job waits for the host.
const noRoom = "the host had no room for another computer"

// pause lets no job begin for a while; why says what there was no room for.
func (s *Store) pause(d time.Duration, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.lacking = time.Now().Add(d), why
}
