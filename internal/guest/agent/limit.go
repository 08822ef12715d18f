package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// containersGroup is the directory, beside those of runs, for the containers of
// the template docker.
const containersGroup = "containers"

// The share that all runs of a machine, with its containers, leave to kernel,
// init and agent, and that one run leaves to the others. The agent also has
// reserved memory, see agentRAM.
const (
	leastLeft = 64 << 20 // bytes
	mostLeft  = 512 << 20
	partLeft  = 8 // fraction of the memory, between the limits above
	oneLeaves = 32 << 20
)

// share is the limits of a group of processes.
type share struct{ memory, tasks int64 }

// shares returns the limits of all runs together, and of one run.
func shares(memory, tasks int64) (all, one share) {
	all = share{memory: memory - min(max(memory/partLeft, leastLeft), mostLeft), tasks: tasks / 4 * 3}
	return all, share{memory: all.memory - oneLeaves, tasks: all.tasks / 2}
}

// set applies the limits to a cgroup. Files of missing controllers are skipped.
func (s share) set(dir string) {
	os.WriteFile(filepath.Join(dir, "memory.max"), strconv.AppendInt(nil, s.memory, 10), 0)
	os.WriteFile(filepath.Join(dir, "pids.max"), strconv.AppendInt(nil, s.tasks, 10), 0)
}

// limits keeps the runs of a machine from using all of it. nil, for an agent
// without a machine, limits nothing.
type limits struct {
	mu     sync.Mutex
	memory int64 // machine memory that the limits are for, bytes
	one    share
}

// limit enables limits for the groups.
func (g *groups) limit() {
	if g.dir == "" {
		return
	}
	os.Mkdir(filepath.Join(g.dir, containersGroup), 0o755)
	g.limits = &limits{}
	g.share()
}

// share returns the limits of one run. It raises the limits if the machine's memory has grown.
func (g *groups) share() *share {
	var si unix.Sysinfo_t
	if g.limits == nil || unix.Sysinfo(&si) != nil {
		return nil
	}
	l, memory := g.limits, int64(si.Totalram)*int64(si.Unit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if memory != l.memory {
		var all share
		l.memory = memory
		all, l.one = shares(memory, mostTasks(memory))
		all.set(g.dir)
		groups, _ := filepath.Glob(filepath.Join(g.dir, "*", "cgroup.procs"))
		for _, file := range groups {
			l.one.set(filepath.Dir(file))
		}
	}
	one := l.one
	return &one
}

// mostTasks returns the kernel's limit of processes and threads. A sandbox's
// kernel does not say one, and takes memory of the host for each.
func mostTasks(memory int64) int64 {
	most := min(1<<15, memory/(512<<10))
	if isThere("/proc/sys/kernel/threads-max") {
		most = 1 << 15 // the default of pid_max
	}
	for _, name := range []string{"threads-max", "pid_max"} {
		if b, err := os.ReadFile("/proc/sys/kernel/" + name); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				most = min(most, n)
			}
		}
	}
	return most
}
