package agent

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	mostKillsTold = 8       // names of killed processes, for one run or service
	mostRecords   = 1 << 16 // records of the kernel's log to read
	maxRecord     = 8 << 10 // bytes of one record
)

// oomKill is a process that the out-of-memory killer killed.
type oomKill struct {
	group string // its cgroup, such as /holt/run_…
	task  string
}

// KernelLog is what a sandbox's agent asks of its kernel, which has no /dev/kmsg:
// a command of reboot(2) that Linux does not have. It copies the newest records of
// kills, at most KernelLogBytes, to the fourth argument, and returns their length.
const (
	KernelLog      = 0x6b6d7367
	KernelLogBytes = 32 << 10
)

// oomKills reads the kills from the kernel's log, oldest first. own: it is the log of a sandbox.
func oomKills() (all []oomKill, own bool) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		var b [KernelLogBytes]byte
		n, _, errno := unix.Syscall6(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, KernelLog, uintptr(unsafe.Pointer(&b[0])), 0, 0)
		if errno != 0 || n > uintptr(len(b)) {
			return nil, false
		}
		for record := range bytes.Lines(b[:n]) {
			if kill, ok := parseKill(record); ok {
				all = append(all, kill)
			}
		}
		return all, true
	}
	defer unix.Close(fd)
	buf := make([]byte, maxRecord)
	for range mostRecords {
		n, err := unix.Read(fd, buf)
		if err == unix.EPIPE { // older records have been overwritten
			continue
		}
		if n <= 0 || err != nil {
			return all, false
		}
		if kill, ok := parseKill(buf[:n]); ok {
			all = append(all, kill)
		}
	}
	return all, false
}

// parseKill parses a record of the kernel's log (dump_oom_summary in
// mm/oom_kill.c): oom-kill:constraint=…, task_memcg=/holt/run_x,task=node,pid=…
// A process chooses its name, but not its cgroup.
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

// killed returns the kills in the cgroup with a name, at any place in the
// hierarchy; nil if the log has none.
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

// outOfMemory returns the kills in the group since it was created; nil if there are none.
func (g group) outOfMemory() *holt.OutOfMemory {
	if g.dir == "" {
		return nil
	}
	events, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	n := eventCount(events, "oom_kill")
	if n == 0 && (err != nil || isThere("/dev/kmsg")) {
		return nil
	}
	all, own := oomKills()
	out := killed(all, filepath.Base(g.dir))
	switch {
	case own && out == nil: // a sandbox has only the log
		return nil
	case out == nil:
		out = &holt.OutOfMemory{}
	}
	out.Count = max(out.Count, n)
	out.LimitMB = memoryLimitMB(g.dir)
	return out
}

// eventCount returns a counter of memory.events.
func eventCount(events []byte, name string) int {
	for line := range bytes.Lines(events) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == name {
			n, _ := strconv.ParseUint(string(f[1]), 10, 31)
			return int(n)
		}
	}
	return 0
}

// memoryLimitMB returns a cgroup's memory limit, or the machine's memory, MiB.
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

// vetMemory bounds a guest's report of kills.
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
