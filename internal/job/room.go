package job

import (
	"cmp"
	"context"
	"maps"
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

// dispatch begins jobs as there is room, see begin.
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

// begin begins what can, of each tenant in the order of coming. The next is of the tenant of which the fewest have begun:
// none waits for another's that has no room. wait says that something is left that only time makes room for.
func (s *Store) begin(ctx context.Context) (wait bool, err error) {
	begun, err := s.table.list(ctx, `WHERE `+hasBegun+` ORDER BY seq`)
	if err != nil {
		return false, err
	}
	for _, r := range begun { // these need no room
		if s.worker(r.ID) == nil && ctx.Err() == nil {
			s.take(r)
		}
	}
	tenants, err := s.table.tenants(ctx)
	if err != nil {
		return false, err
	}
	var next []record
	add := func(tenant string) error {
		one, err := s.table.next(ctx, tenant, s.working())
		next = append(next, one...)
		return err
	}
	for _, tenant := range tenants {
		if err := add(tenant); err != nil {
			return wait, err
		}
	}
	refused, lacks := 0, "" // the least memory there was no room for
	for len(next) > 0 {
		if s.cfg.Computers.Draining() || ctx.Err() != nil {
			return true, nil
		}
		i := s.turn(next)
		r := next[i]
		next = slices.Delete(next, i, i+1)
		if slices.Contains(s.held(), r.of()) {
			wait = true
			continue
		}
		why := lacks
		if refused == 0 || r.Spec.MemoryMB < refused {
			if why, err = s.room(ctx, r.Spec.MemoryMB); err != nil {
				return true, err
			}
		}
		if why != "" {
			wait, refused, lacks = true, r.Spec.MemoryMB, why
			if r.Reason == "" { // else with each pass for each tenant, as the figures change
				err = s.table.because(ctx, r.ID, why)
			}
		} else {
			s.take(r)
			err = add(r.of())
		}
		if err != nil {
			return true, err
		}
	}
	return wait, nil
}

// turn says which of some jobs, one of a tenant, is to begin.
func (s *Store) turn(next []record) (first int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := map[string]int{}
	for _, w := range s.active {
		begun[w.tenant]++
	}
	for i, r := range next {
		f := next[first]
		if cmp.Or(cmp.Compare(begun[r.of()], begun[f.of()]), cmp.Compare(r.seq, f.seq)) < 0 {
			first = i
		}
	}
	return first
}

// working returns the jobs that have a worker.
func (s *Store) working() []holt.JobID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq([]holt.JobID{}, maps.Keys(s.active))
}

// take gives a job to a worker of its own, unless it has one or the daemon ends.
func (s *Store) take(r record) {
	w := &worker{s: s, r: r, tenant: r.of(), memoryMB: r.Spec.MemoryMB, made: r.State == holt.JobCollecting || r.RunID != ""}
	w.ctx, w.cancel = context.WithCancelCause(holt.WithActor(s.ctx, holt.Actor{Tenant: r.of()}))
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
		if l := s.limited[w.tenant]; l != nil && w.made {
			l.until, l.pause = time.Now(), 0 // it has made room there
		}
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

// limited is a tenant whose limit was reached, or for whose job the host had no memory. Its jobs are tried one after the
// other, and with each that begins twice as many at once, so that few make a workspace for nothing.
type limited struct {
	until time.Time     // none is tried before
	pause time.Duration // that was
	most  int           // how many are being made at once
}

const (
	mostPause = 8 * look    // between two tries of a tenant's jobs
	forgotten = time.Minute // after a try, is that there was a limit
)

// held returns the tenants of which no job may begin now.
func (s *Store) held() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	making := map[string]int{}
	for _, w := range s.active {
		if !w.made {
			making[w.tenant]++
		}
	}
	list, now := []string{}, time.Now()
	for tenant, l := range s.limited {
		switch {
		case now.Before(l.until) || making[tenant] >= l.most:
			list = append(list, tenant)
		case now.Sub(l.until) > forgotten:
			delete(s.limited, tenant)
		}
	}
	return list
}

// limit holds the jobs of one tenant back.
func (s *Store) limit(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limited[tenant]
	if l == nil {
		l = &limited{}
		s.limited[tenant] = l
	}
	l.most = 1
	if now := time.Now(); !now.Before(l.until) { // not one of those that began together
		l.pause = min(max(look, 2*l.pause), mostPause)
		l.until = now.Add(l.pause)
	}
}

// madeOne says that a worker's computer is there.
func (s *Store) madeOne(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.made = true
	if l := s.limited[w.tenant]; l != nil {
		if l.most, l.pause, l.until = 2*l.most, 0, time.Now(); l.most >= s.cfg.Most {
			delete(s.limited, w.tenant)
		}
	}
}
