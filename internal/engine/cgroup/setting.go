package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// setting is a value for a file of a group; the first existing name is used.
type setting struct {
	names []string
	value string
	lax   bool // ignore errors
}

func (s setting) write(group string) error {
	for _, name := range s.names {
		f, err := os.OpenFile(filepath.Join(group, name), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = f.WriteString(s.value)
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("set %s to %q: %w", name, s.value, err)
		}
		return nil
	}
	return nil // not supported by this kernel, or the group has been removed
}

func one(name string, value any) setting {
	return setting{names: []string{name}, value: fmt.Sprint(value)}
}

// period is the period of the processor limit, microseconds.
const period = 100_000

// limits returns the settings of a machine's group.
func (h hierarchy) limits(l Limits) (all []setting) {
	quota := int64(l.CPUs * period)
	of := map[string][]setting{
		"cpu":    {one("cpu.cfs_period_us", period), one("cpu.cfs_quota_us", quota)},
		"memory": {one("memory.limit_in_bytes", l.MemoryBytes)},
		"pids":   {one("pids.max", l.Processes)},
	}
	if h.v2 {
		of["cpu"] = []setting{one("cpu.max", fmt.Sprintf("%d %d", quota, period))}
		of["memory"] = []setting{one("memory.max", l.MemoryBytes)}
	}
	for _, c := range h.controllers {
		all = append(all, of[c]...)
	}
	return all
}

// shares returns the settings of a parent: the weight of all its machines
// together. Without background it is, for each processor, a quarter of the weight
// of an ordinary thread, so that busy machines do not slow down the daemon, which
// serves all of them. With the weight of a whole thread, a call of the daemon took
// up to 9 s while a gVisor sandbox ran 16 busy loops.
func (h hierarchy) shares(background bool) (all []setting) {
	per, io := 256, "100" // a thread has 1024
	if background {
		per, io = 15, "10" // a thread with the lowest priority, see sched(7)
	}
	shares := min(per*runtime.NumCPU(), 1<<18)
	weight := max(1, min(shares*100/1024, 10_000))
	of := map[string]setting{
		"cpu": one("cpu.shares", shares),
		"io":  {names: []string{"blkio.bfq.weight", "blkio.weight"}, value: io, lax: true}, // not all I/O schedulers support weights
	}
	if h.v2 {
		of["cpu"] = one("cpu.weight", weight)
		of["io"] = setting{names: []string{"io.weight", "io.bfq.weight"}, value: io, lax: true}
	}
	for _, c := range h.controllers {
		if s, ok := of[c]; ok {
			all = append(all, s)
		}
	}
	return all
}
