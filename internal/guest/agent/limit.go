package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// containersGroup is the directory beside those of runs in which the template docker has its containers.
const containersGroup = "containers"

// What the runs of a machine, with its containers, leave to the kernel, its init and the agent, and one
// of them to the others. The agent has memory of its own besides, see agentRAM.
const (
	leastLeft = 64 << 20 // bytes
	mostLeft  = 512 << 20
	partLeft  = 8 // of the memory, between those
	oneLeaves = 32 << 20
)

// share is what processes may take together.
type share struct{ memory, tasks int64 }

// shares works out what all runs together may take of a machine, and what one may.
func shares(memory, tasks int64) (all, one share) {
	all = share{memory: memory - min(max(memory/partLeft, leastLeft), mostLeft), tasks: tasks / 4 * 3}
	return all, share{memory: all.memory - oneLeaves, tasks: all.tasks / 2}
}

// set gives a cgroup its share. A kernel that lacks a controller has no such file.
func (s share) set(dir string) {
	os.WriteFile(filepath.Join(dir, "memory.max"), strconv.AppendInt(nil, s.memory, 10), 0)
	os.WriteFile(filepath.Join(dir, "pids.max"), strconv.AppendInt(nil, s.tasks, 10), 0)
}

// limits keeps the runs of a machine from taking all of it. Without it (an agent that does not own its
// machine has none) nothing is limited.
type limits struct {
	mu     sync.Mutex
	memory int64 // of the machine that one is for, bytes
	one    share
}

// limit begins to limit what is in the groups.
func (g *groups) limit() {
	if g.dir == "" {
		return
	}
	os.Mkdir(filepath.Join(g.dir, containersGroup), 0o755)
	g.limits = &limits{}
	g.share()
}

// share returns what one run may take. A machine whose memory has grown has more for all.
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
		all, l.one = shares(memory, mostTasks())
		all.set(g.dir)
		groups, _ := filepath.Glob(filepath.Join(g.dir, "*", "cgroup.procs"))
		for _, file := range groups {
			l.one.set(filepath.Dir(file))
		}
	}
	one := l.one
	return &one
}

// mostTasks is how many processes and threads the kernel takes.
func mostTasks() int64 {
	most := int64(1 << 15) // what it takes by default
	for _, name := range []string{"threads-max", "pid_max"} {
		if b, err := os.ReadFile("/proc/sys/kernel/" + name); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				most = min(most, n)
			}
		}
	}
	return most
}
