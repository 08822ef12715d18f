package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
)

// Activity is the activity of a guest, as counters that grow: the difference of
// two is what was used in between.
type Activity struct {
	// CPUMS is the processor time of the whole machine since boot without the
	// agent's own, milliseconds; 0 if the agent has no machine. The machine's time
	// is sampled and the agent's is exact, so CPUMS can decrease on an idle
	// machine.
	CPUMS int64 `json:"cpu_ms"`
	// NetBytes is the traffic of all interfaces except loopback; 0 if the agent has
	// no machine. A removed interface no longer counts.
	NetBytes int64 `json:"net_bytes"`
	// MemoryUsed is the machine's memory that is not available to programs, bytes;
	// 0 if the agent has no machine.
	MemoryUsed int64 `json:"memory_used,omitempty"`
	// Groups are the running terminals, and the ended runs with remaining processes.
	Groups []GroupActivity `json:"groups,omitempty"`
	// Top are the processes that used the most processor time since the previous call.
	Top []ProcessActivity `json:"top,omitempty"`
}

// GroupActivity is the usage of the processes of a run or terminal.
type GroupActivity struct {
	ID        string `json:"id"`
	CPUMS     int64  `json:"cpu_ms"`
	Processes int    `json:"processes"`
}

// ProcessActivity is the usage of one process since the previous call.
type ProcessActivity struct {
	PID     int    `json:"pid"`
	CPUMS   int64  `json:"cpu_ms"`
	Command string `json:"command"`
}

const (
	mostActive     = 512 // groups; further ones count only for the whole machine
	mostTop        = 3
	mostScanned    = 4096 // processes
	maxTopCommand  = 120  // bytes
	tickMS         = 10   // USER_HZ is 100, see proc(5)
	statUser       = 11   // index of a field in /proc/PID/stat after the name
	statSystem     = 12
	statStart      = 19
	netReceived    = 0 // columns of /proc/net/dev after the name
	netTransmitted = 8
)

// topScan holds the processor time of processes at the previous call.
type topScan struct {
	mu   sync.Mutex
	seen map[procID]int64 // ticks
}

// procID identifies a process even if its pid is reused.
type procID struct {
	pid   int
	start int64
}

// activity answers opActivity.
func (s *Server) activity(context.Context, json.RawMessage) (any, error) {
	var a Activity
	if s.opt.Machine {
		a.CPUMS, a.NetBytes = machineCPU()-ownCPU(), interfaceBytes("/proc/net/dev")
		a.MemoryUsed = memoryUsed("/proc/meminfo")
	}
	for _, t := range s.terms.all() {
		if _, over := t.over(); !over {
			a.Groups = append(a.Groups, t.group.activity(1))
		}
	}
	for _, info := range s.runs.all() {
		if info.State != holt.RunExited || info.Background == 0 || len(a.Groups) == mostActive {
			continue
		}
		if r, err := s.runs.get(info.ID); err == nil {
			if left := r.left(); left > 0 {
				a.Groups = append(a.Groups, r.group.activity(left))
			}
		}
	}
	if s.opt.Machine {
		a.Top = s.top.scan()
	}
	return a, nil
}

// machineCPU reads the first line of /proc/stat: user nice system idle iowait irq softirq …, in ticks.
func machineCPU() int64 {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	return busyTicks(line) * tickMS
}

func busyTicks(line string) (busy int64) {
	for i, word := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		if i == 3 || i == 4 || i > 6 {
			continue
		}
		n, _ := strconv.ParseInt(word, 10, 64)
		busy += n
	}
	return busy
}

// ownCPU returns the processor time of this process, milliseconds.
func ownCPU() int64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return (ru.Utime.Nano() + ru.Stime.Nano()) / 1e6
}

// interfaceBytes returns the traffic of all interfaces except loopback.
func interfaceBytes(path string) (sum int64) {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(io.LimitReader(f, 1<<20)); sc.Scan(); {
		name, rest, ok := strings.Cut(sc.Text(), ":")
		columns := strings.Fields(rest)
		if !ok || strings.TrimSpace(name) == "lo" || len(columns) <= netTransmitted {
			continue
		}
		for _, i := range []int{netReceived, netTransmitted} {
			n, _ := strconv.ParseInt(columns[i], 10, 64)
			sum += n
		}
	}
	return sum
}

// activity returns the usage of a group's processes; with cgroup2 it includes
// those that have ended.
func (g group) activity(processes int) GroupActivity {
	a := GroupActivity{ID: g.id, Processes: processes}
	if g.dir != "" {
		b, _ := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
		if _, rest, ok := bytes.Cut(b, []byte("usage_usec ")); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			usec, _ := strconv.ParseInt(string(line), 10, 64)
			a.CPUMS = usec / 1000
			return a
		}
	}
	for _, pid := range g.pids() {
		_, ticks, _ := processTicks(pid)
		a.CPUMS += ticks * tickMS
	}
	return a
}

// processTicks reads the processor time of a process.
func processTicks(pid int) (id procID, ticks int64, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return id, 0, false
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may contain anything
	if len(f) <= statStart {
		return id, 0, false
	}
	user, _ := strconv.ParseInt(f[statUser], 10, 64)
	system, _ := strconv.ParseInt(f[statSystem], 10, 64)
	start, _ := strconv.ParseInt(f[statStart], 10, 64)
	return procID{pid, start}, user + system, true
}

// scan returns the processes that used the most processor time since the last
// scan; the first scan returns none.
func (t *topScan) scan() (top []ProcessActivity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(mostScanned)
	dir.Close()
	before, now := t.seen, map[procID]int64{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, ticks, ok := processTicks(pid)
		if !ok {
			continue
		}
		now[id] = ticks
		if used := ticks - before[id]; before != nil && used > 0 {
			top = append(top, ProcessActivity{PID: pid, CPUMS: used * tickMS})
		}
	}
	t.seen = now
	slices.SortFunc(top, func(a, b ProcessActivity) int { return cmp.Compare(b.CPUMS, a.CPUMS) })
	top = top[:min(len(top), mostTop)]
	for i := range top {
		if p, ok := process(top[i].PID, nil); ok {
			top[i].Command = string(p.Command[:min(len(p.Command), maxTopCommand)])
		}
	}
	return top
}

// Activity returns the activity of the guest, bounded but not verified.
func (c *Client) Activity(ctx context.Context) (Activity, error) {
	var a Activity
	if err := c.call(ctx, opActivity, nil, &a); err != nil {
		return Activity{}, err
	}
	a.CPUMS, a.NetBytes = max(0, a.CPUMS), max(0, a.NetBytes)
	a.Groups = a.Groups[:min(len(a.Groups), mostActive)]
	for i := range a.Groups {
		g := &a.Groups[i]
		g.ID, g.CPUMS, g.Processes = plain(g.ID, maxWord), max(0, g.CPUMS), max(0, g.Processes)
	}
	a.Top = a.Top[:min(len(a.Top), mostTop)]
	for i := range a.Top {
		a.Top[i].Command = plain(a.Top[i].Command, maxTopCommand)
	}
	return a, nil
}
