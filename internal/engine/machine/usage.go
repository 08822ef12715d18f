package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Usage is what the processes of a machine take of the host.
type Usage struct {
	CPUMS    int64 // that they and those that they have waited for have used, milliseconds
	Resident int64 // memory, bytes; what two of them share counts in both
	Own      int64 // of that, what is of no file
}

const (
	mostProcesses = 512 // of one machine that are looked at
	tickMS        = 10  // USER_HZ is 100, see proc(5)

	// Fields of /proc/PID/stat behind the name.
	statUser  = 11 // user, system, and the same of children that were waited for
	statAfter = 15
)

// UsageOf adds up processes and their descendants; one that has ended counts nothing.
func UsageOf(pids ...int) (u Usage) {
	todo := slices.Clone(pids)
	for n := 0; n < len(todo) && n < mostProcesses; n++ {
		u.add(todo[n])
		todo = append(todo, children(todo[n])...)
	}
	return u
}

func (u *Usage) add(pid int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < statAfter {
		return
	}
	for _, ticks := range f[statUser:statAfter] {
		n, _ := strconv.ParseInt(string(ticks), 10, 64)
		u.CPUMS += n * tickMS
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return
	}
	for line := range bytes.Lines(status) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(string(f[1]), 10, 64)
		switch string(f[0]) {
		case "VmRSS:":
			u.Resident += kib << 10
		case "RssAnon:":
			u.Own += kib << 10
		}
	}
}

// OwnMemory is what of a process's memory is of no file, bytes; 0 of one that has ended.
func OwnMemory(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // proc_pid_statm(5): size, resident, shared
	f := bytes.Fields(b)
	if err != nil || len(f) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(f[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(f[2]), 10, 64)
	return max(0, resident-shared) * int64(os.Getpagesize())
}

// children are those that any thread of a process has started.
func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, path := range lists {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range bytes.Fields(b) {
			if child, err := strconv.Atoi(string(word)); err == nil && len(pids) < mostProcesses {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
