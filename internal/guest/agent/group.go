package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The environment variables with the id of a run or terminal. Without cgroup2
// they also identify its processes.
const (
	runEnv      = "HOLT_RUN"
	terminalEnv = "HOLT_TERMINAL"
)

// The prefixes of ids of runs and terminals, which are also the names of their cgroups.
const (
	runPrefix      = "run_"
	terminalPrefix = "term_"
)

// envOf returns the environment variable for an id.
func envOf(id string) string {
	if strings.HasPrefix(id, terminalPrefix) {
		return terminalEnv
	}
	return runEnv
}

// groups creates the process groups of runs and terminals: a cgroup each or,
// without cgroup2, all processes with the id in their environment. The latter
// misses processes that clear their environment.
type groups struct {
	dir string // directory of the cgroups; "" without cgroup2
	// starting is held for reading from the creation of a cgroup until its first
	// process: an empty one may be swept.
	starting sync.RWMutex
	limits   *limits // nil: none
}

// cgroupMount returns the mount point of cgroup2, or "". On hosts with cgroup
// v1 it may be /sys/fs/cgroup/unified.
func cgroupMount() string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		// 36 35 98:0 /root /point options - type source options
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return ""
}

// findGroups prepares the directory of cgroups with that name, and removes
// empty groups of an earlier agent.
func findGroups(name string) *groups {
	mount := cgroupMount()
	if mount == "" {
		return &groups{}
	}
	dir := filepath.Join(mount, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &groups{}
	}
	g := &groups{dir: dir}
	// Hosts may lack some controllers; limits for runs are optional.
	for _, c := range []string{"+cpu", "+memory", "+pids", "+io"} {
		os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0)
	}
	g.sweep()
	return g
}

// sweep removes empty cgroups of runs and terminals, unless one is being started.
func (g *groups) sweep() {
	if g.dir == "" || !g.starting.TryLock() {
		return
	}
	defer g.starting.Unlock()
	for _, prefix := range []string{runPrefix, terminalPrefix} {
		old, _ := filepath.Glob(filepath.Join(g.dir, prefix+"*"))
		for _, dir := range old {
			unix.Rmdir(dir)
		}
	}
}

// group is the processes of one run or terminal.
type group struct {
	id    string
	dir   string // its cgroup; "" without cgroup2
	share *share // its limits; nil: none
}

func (g *groups) of(id string) group {
	if g.dir == "" {
		return group{id: id}
	}
	return group{id: id, dir: filepath.Join(g.dir, id), share: g.share()}
}

// join makes attr start a process in the group. done must be called after the start.
func (g group) join(attr *syscall.SysProcAttr) (done func(), err error) {
	if g.dir == "" {
		return func() {}, nil
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if g.share != nil {
		g.share.set(g.dir)
	}
	fd, err := unix.Open(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	return func() { unix.Close(fd) }, nil
}

// swept reports whether the group's cgroup has been removed.
func (g group) swept() bool {
	_, err := os.Lstat(g.dir)
	return g.dir != "" && errors.Is(err, os.ErrNotExist)
}

// pids returns the group's live processes.
func (g group) pids() []int {
	if g.dir == "" {
		return g.byEnvironment()
	}
	var pids []int
	filepath.WalkDir(g.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, f := range strings.Fields(string(b)) {
			// 0 means a process outside this PID namespace.
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 && !dead(pid) {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

func (g group) byEnvironment() []int {
	mark := []byte("\x00" + envOf(g.id) + "=" + g.id + "\x00")
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), mark) && !dead(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// dead reports whether a process is a zombie.
func dead(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// pid (name) state …; the name may contain anything
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && i+2 < len(b) && (b[i+2] == 'Z' || b[i+2] == 'X')
}

// signal sends sig to every process and returns their number.
func (g group) signal(sig unix.Signal) int {
	if sig == unix.SIGKILL {
		return g.kill()
	}
	pids := g.pids()
	for _, pid := range pids {
		unix.Kill(pid, sig)
	}
	return len(pids)
}

// kill kills every process, including those that are just being forked.
func (g group) kill() int {
	pids := g.pids()
	if g.dir != "" && os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return len(pids)
	}
	// Without cgroup.kill (before Linux 5.14) a process may fork during the search,
	// so repeat until none is found.
	for again, round := pids, 0; len(again) > 0 && round < 100; round++ {
		for _, pid := range again {
			unix.Kill(pid, unix.SIGKILL)
		}
		again = g.pids()
	}
	return len(pids)
}

// remove removes the cgroup; one that is in use stays until a sweep.
func (g group) remove() {
	if g.dir != "" {
		unix.Rmdir(g.dir)
	}
}
