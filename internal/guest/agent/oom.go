package agent

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	mostKillsTold = 8       // names of processes that were killed for memory, of one run or service
	mostRecords   = 1 << 16 // of the kernel's log that are read
	maxRecord     = 8 << 10 // bytes of one
)

// oomKill is a process that the kernel killed because memory was at an end.
type oomKill struct {
	group string // its cgroup, as /holt/run_…
	task  string
}

// oomKills reads those that the kernel's log still has, oldest first.
func oomKills() (all []oomKill) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, maxRecord)
	for range mostRecords {
		n, err := unix.Read(fd, buf)
		if err == unix.EPIPE { // older records have gone meanwhile
			continue
		}
		if n <= 0 || err != nil {
			return all
		}
		if kill, ok := parseKill(buf[:n]); ok {
			all = append(all, kill)
		}
	}
	return all
}

// parseKill reads a record of the kernel's log (dump_oom_summary in mm/oom_kill.c): oom-kill:constraint=…,
// task_memcg=/holt/run_x,task=node,pid=… A process chooses its name, but not where it is.
func parseKill(record []byte) (k oomKill, ok bool) {
	_, text, _ := bytes.Cut(record, []byte(";"))
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if !bytes.HasPrefix(line, []byte("oom-kill:")) {
		return k, false
	}
	_, rest, ok := bytes.Cut(line, []byte(",task_memcg="))
	group, rest, ok2 := bytes.Cut(rest, []byte(",task="))
	end := bytes.LastIndex(rest, []byte(",pid="))
	if !ok || !ok2 || end < 0 {
		return k, false
	}
	return oomKill{group: string(group), task: plain(string(rest[:end]), maxWord)}, true
}

// killed says what was killed for memory in the cgroup of a name, wherever that is; nil: nothing that the log has.
func killed(all []oomKill, name string) *holt.OutOfMemory {
	var out *holt.OutOfMemory
	for _, k := range all {
		if !slices.Contains(strings.Split(k.group, "/"), name) {
			continue
		}
		if out == nil {
			out = &holt.OutOfMemory{}
		}
		if out.Count++; !slices.Contains(out.Killed, k.task) && len(out.Killed) < mostKillsTold {
			out.Killed = append(out.Killed, k.task)
		}
	}
	return out
}

// outOfMemory says what the kernel killed of the group for want of memory, since it was made; nil: nothing.
func (g group) outOfMemory() *holt.OutOfMemory {
	if g.dir == "" {
		return nil
	}
	events, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	n := eventCount(events, "oom_kill")
	if err != nil || n == 0 {
		return nil
	}
	out := killed(oomKills(), filepath.Base(g.dir))
	if out == nil {
		out = &holt.OutOfMemory{}
	}
	out.Count = n
	out.LimitMB = memoryLimitMB(g.dir)
	return out
}

// eventCount reads a counter of memory.events.
func eventCount(events []byte, name string) int {
	for line := range bytes.Lines(events) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == name {
			n, _ := strconv.ParseUint(string(f[1]), 10, 31)
			return int(n)
		}
	}
	return 0
}

// memoryLimitMB is what a cgroup may take: its own limit, or all of the machine's memory. MiB.
func memoryLimitMB(dir string) int {
	most := int64(math.MaxInt64)
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		most = int64(si.Totalram) * int64(si.Unit)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "memory.max")); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			most = min(most, n)
		}
	}
	return int(most >> 20)
}

// vetMemory bounds what a guest says of memory that was at an end.
func vetMemory(o *holt.OutOfMemory) *holt.OutOfMemory {
	if o == nil {
		return nil
	}
	v := &holt.OutOfMemory{LimitMB: min(max(0, o.LimitMB), math.MaxInt32), Count: min(max(1, o.Count), math.MaxInt32)}
	for _, task := range o.Killed[:min(len(o.Killed), mostKillsTold)] {
		v.Killed = append(v.Killed, plain(task, 64))
	}
	return v
}
