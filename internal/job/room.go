package job

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"holt"
)

// room returns why a job of that memory cannot begin now; "" if it can. If no other job runs
// it can always try: the creation of its computer fails if there is no room.
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
		return holt.CountOf(len(begun), "job") + " already running, the maximum", nil
	}
	err = s.cfg.Computers.Room(ctx, memoryMB, begun)
	if holt.CodeOf(err) == holt.TooMany {
		return err.Error(), nil
	}
	return "", err
}

// dispatch calls begin whenever there may be room.
func (s *Store) dispatch() {
	for {
		wait, err := s.begin(s.ctx)
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("begin jobs", "err", err)
			wait = true
		}
		var later <-chan time.Time
		if wait {
			later = time.After(pollEvery)
		}
		select {
		case <-s.wake:
		case <-later:
		case <-s.ctx.Done():
			return
		}
	}
}

// begin starts the queued jobs that there is room for, those of each tenant in their order. The next job is one of the tenant
// with the fewest running jobs, so no tenant waits for a job of another that has no room. wait: jobs are left, so try
// again later.
func (s *Store) begin(ctx context.Context) (wait bool, err error) {
	begun, err := s.table.list(ctx, `WHERE `+hasBegun+` ORDER BY seq`)
	if err != nil {
		return false, err
	}
	for _, r := range begun { // they have their room
		if s.worker(r.ID) == nil && ctx.Err() == nil {
			s.startWorker(r)
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
	refused, lacks := 0, "" // the least memory that there was no room for, and why
	for len(next) > 0 {
		if s.cfg.Computers.Draining() || ctx.Err() != nil {
			return true, nil
		}
		i := s.pickNext(next)
		r := next[i]
		next = slices.Delete(next, i, i+1)
		if slices.Contains(s.heldTenants(), r.tenant()) {
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
			if r.Reason == "" { // not again in each pass, since the figures in it change
				err = s.table.setReason(ctx, r.ID, why)
			}
		} else {
			s.startWorker(r)
			err = add(r.tenant())
		}
		if err != nil {
			return true, err
		}
	}
	return wait, nil
}

// pickNext returns which of the jobs, at most one of each tenant, begins next.
func (s *Store) pickNext(next []record) (first int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := map[string]int{}
	for _, w := range s.active {
		begun[w.tenant]++
	}
	for i, r := range next {
		f := next[first]
		if cmp.Or(cmp.Compare(begun[r.tenant()], begun[f.tenant()]), cmp.Compare(r.seq, f.seq)) < 0 {
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

// startWorker starts a worker for a job, unless it has one or the daemon ends.
func (s *Store) startWorker(r record) {
	w := &worker{s: s, r: r, tenant: r.tenant(), memoryMB: r.Spec.MemoryMB, made: r.State == holt.JobCollecting || r.RunID != ""}
	w.ctx, w.cancel = context.WithCancelCause(holt.WithActor(s.ctx, holt.Actor{Tenant: r.tenant()}))
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
			l.until, l.pause = time.Now(), 0 // the tenant has room again
		}
		s.mu.Unlock()
		s.notify()
		s.wakeDispatch()
	})
}

// stop ends a job that is marked as cancelled, at once also if it is queued.
func (s *Store) stop(r record) {
	s.mu.Lock()
	w := s.active[r.ID]
	s.mu.Unlock()
	if w != nil {
		w.cancel(errCancelled)
		return
	}
	r.cancelled = true
	s.startWorker(r)
}

// noRoom is the reason of a job that waits for the host.
const noRoom = "the host had no room for another computer"

// pause starts no jobs for a duration. why is the reason that they get.
func (s *Store) pause(d time.Duration, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.lacking = time.Now().Add(d), why
}

// limited is a tenant whose limit was reached, or whose job exceeded the host's memory. Its jobs are tried one at a
// time, and each success doubles the number of concurrent tries, so that few workspaces are made in vain.
type limited struct {
	until time.Time     // no try before this time
	pause time.Duration // the last pause
	most  int           // concurrent tries
}

const (
	mostPause = 8 * pollEvery // the longest pause between tries of a tenant's jobs
	forgotten = time.Minute   // a tenant is limited no longer this long after a try
)

// heldTenants returns the tenants whose jobs may not begin now.
func (s *Store) heldTenants() []string {
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

// holdTenant pauses the jobs of one tenant.
func (s *Store) holdTenant(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limited[tenant]
	if l == nil {
		l = &limited{}
		s.limited[tenant] = l
	}
	l.most = 1
	if now := time.Now(); !now.Before(l.until) { // concurrent failures count once
		l.pause = min(max(pollEvery, 2*l.pause), mostPause)
		l.until = now.Add(l.pause)
	}
}

// computerMade records that the computer of a worker exists.
func (s *Store) computerMade(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.made = true
	if l := s.limited[w.tenant]; l != nil {
		if l.most, l.pause, l.until = 2*l.most, 0, time.Now(); l.most >= s.cfg.Most {
			delete(s.limited, w.tenant)
		}
	}
}
