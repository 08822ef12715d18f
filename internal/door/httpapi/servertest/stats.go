package servertest

import (
	"context"
	"os"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// stats say of every computer that runs what this process takes: its computers are nothing by themselves.
type stats struct{ m *Memory }

func (n stats) Get(_ context.Context, ref string) (holt.ComputerStats, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(ref)
	if err != nil {
		return holt.ComputerStats{}, err
	}
	return statsOf(c), nil
}

func (n stats) List(context.Context) ([]holt.ComputerStats, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var all []holt.ComputerStats
	for _, c := range n.m.computers {
		all = append(all, statsOf(c))
	}
	return all, nil
}

func statsOf(c *holt.Computer) holt.ComputerStats {
	out := holt.ComputerStats{ComputerID: c.ID, Computer: c.Name, State: c.State, At: time.Now().UTC(), CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskSizeMB: c.DiskSizeMB}
	if c.State == holt.ComputerRunning {
		u := machine.UsageOf(os.Getpid())
		out.CPUMS, out.ResidentBytes, out.OwnBytes = u.CPUMS, u.Resident, u.Own
	}
	return out
}
