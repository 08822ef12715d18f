package computer

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
)

const (
	statsAtOnce  = 8             // computers that are looked at
	statsNetwork = time.Second   // for a network process to say what went through it
	statsTold    = 4 * idleEvery // how old what a guest told may be
)

// Stats returns what a computer uses of the host. It asks no guest and wakes no computer.
func (s *Store) Stats(ctx context.Context, ref string) (holt.ComputerStats, error) {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.ComputerStats{}, err
	}
	return s.statsOf(ctx, r)
}

// AllStats returns it for all computers, sorted by name.
func (s *Store) AllStats(ctx context.Context) ([]holt.ComputerStats, error) {
	all, err := s.table.all(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]holt.ComputerStats, len(all))
	var work errgroup.Group
	work.SetLimit(statsAtOnce)
	for i, r := range all {
		work.Go(func() (err error) {
			list[i], err = s.statsOf(ctx, r)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return list, nil
}

func (s *Store) statsOf(ctx context.Context, r record) (holt.ComputerStats, error) {
	out := holt.ComputerStats{
		ComputerID: r.ID, Computer: r.Name, State: r.State, At: time.Now().UTC(),
		CPUs: r.CPUs, MemoryMB: r.MemoryMB, DiskSizeMB: r.DiskSizeMB, DiskBytes: archive.Allocated(s.disks.path(r.disk)),
	}
	if s.cfg.ownNetworks(s.cfg.engine(r)) {
		bounded, cancel := context.WithTimeout(ctx, statsNetwork)
		defer cancel()
		went, err := s.cfg.Networks.Traffic(bounded, s.cfg.dir(r.ID))
		if err == nil { // else it is not known now
			sum := holt.SumTraffic(went)
			out.Sent, out.Received = sum.Sent, sum.Received
		}
	}
	l := s.machines.live(r.ID)
	if r.State != holt.ComputerRunning || l == nil {
		return out, nil
	}
	u := machine.UsageOf(l.processes()...)
	out.CPUMS, out.ResidentBytes, out.OwnBytes = u.CPUMS, u.Resident, u.Own
	out.GuestBytes = min(l.busy.memory(statsTold), int64(r.MemoryMB)<<20)
	i := s.idler
	in, err := i.inUse(ctx, r, l)
	if err == nil && len(in) == 0 {
		since, _ := i.idle(r)
		out.IdleSince = &since
	}
	return out, err
}

// processes are the roots of all process trees of a machine.
func (l *live) processes() []int {
	pids := []int{l.m.PID()}
	if l.net == nil {
		return pids
	}
	if pid := l.net.PID(); pid != 0 {
		pids = append(pids, pid)
	}
	return pids
}

// memory is the used memory that the guest reported within patience, bytes; otherwise 0.
func (b *busy) memory(patience time.Duration) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil || b.now().Sub(b.at) > patience {
		return 0
	}
	return max(0, b.told.MemoryUsed)
}
