package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Usage is the host resources used by the processes of a machine.
type Usage struct {
	CPUMS    int64 // processor time, including reaped children, milliseconds
	Resident int64 // resident memory, bytes; shared memory counts for each process
	Own      int64 // the part that is not file-backed
}

const (
	mostProcesses = 512 // maximum counted for one machine
	tickMS        = 10  // USER_HZ is 100, see proc(5)

	// Indexes of fields in /proc/PID/stat after the name.
	statUser  = 11 // user, system, and the same for reaped children
	statAfter = 15
)

// UsageOf adds up processes and their descendants, ignoring those that have ended.
func UsageOf(pids ...int) (u Usage) {
	for _, pid := range Descendants(pids...) {
		u.add(pid)
	}
	return u
}

// Descendants returns processes and their descendants, at most 512 in all.
func Descendants(pids ...int) []int {
	all := slices.Clone(pids)
	for n := 0; n < len(all) && n < mostProcesses; n++ {
		all = append(all, children(all[n])...)
	}
	return all[:min(len(all), mostProcesses)]
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

// OwnMemory returns a process's resident memory that is not file-backed, bytes; 0 if it has ended.
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

// children returns the children of all threads of a process.
func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
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
