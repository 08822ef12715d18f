package job

import (
	"cmp"
	"context"
	"encoding/json"
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
	held := s.held()
	wait = len(held) > 0
	except, err := json.Marshal(held)
	if err != nil {
		return wait, err
	}
	list, err := s.table.list(ctx, `WHERE ended = 0 AND (cancelled OR json_extract(record, '$.state') <> 'queued'
		OR `+tenantOf+` NOT IN (SELECT value FROM json_each(?))) ORDER BY seq LIMIT ?`, string(except), mostWaiting+s.cfg.Most)
	if err != nil {
		return wait, err
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
		if slices.Contains(s.held(), r.of()) { // since the list was made: those behind it come next
			s.ring()
			continue
		}
		if why, err := s.room(ctx, r.Spec.MemoryMB); why != "" || err != nil {
			return true, errors.Join(err, s.waits(ctx, r, cmp.Or(why, r.Reason)))
		}
		s.take(r)
	}
	return wait, nil
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
	w := &worker{s: s, r: r, tenant: r.of(), memoryMB: r.Spec.MemoryMB, made: r.State == holt.JobCollecting}
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

// limited is a tenant whose limit was reached. Its jobs are tried one after the other, and with each that begins twice as
// many at once, so that few make a workspace for nothing.
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

// limit holds the jobs of one tenant back, which has reached a limit of its own.
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
