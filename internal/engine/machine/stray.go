package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stray is a machine's process that nobody controls.
type Stray struct {
	Dir     string  // the machine's directory, which may have been removed
	Process Process // who it is

	kill func(Process) error
}

// Kill ends it and returns when it is gone.
func (s Stray) Kill() error { return s.kill(s.Process) }

// FindStrays returns the processes that hold the lock of a machine directory
// under root and for which is says yes; this process is never one. Processes
// that may not be looked at (another user's) are not found. Kill is how an
// engine ends them: [Process.Kill], or more.
func FindStrays(root string, is func(Process) bool, kill func(Process) error) ([]Stray, error) {
	return FindHolders(root, LockFile, is, kill)
}

// FindHolders is FindStrays for a lock of another name in machines' directories.
func FindHolders(root, name string, is func(Process) bool, kill func(Process) error) ([]Stray, error) {
	root, err := filepath.EvalSymlinks(root) // /proc shows resolved paths
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find strays: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find strays: %w", err)
	}
	var strays []Stray
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := Identify(pid)
		if err != nil {
			continue // ended meanwhile
		}
		for _, lock := range locks(pid, name) {
			if dir := filepath.Dir(lock); under(root, dir) && is(p) {
				strays = append(strays, Stray{Dir: dir, Process: p, kill: kill})
				break
			}
		}
	}
	return strays, nil
}

func under(root, dir string) bool {
	return dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}

// HeldBy tells whether a process has the directory's lock of that name open; this one, which looks at locks of others, never does.
func (d *Dir) HeldBy(pid int, lock string) bool {
	resolved, err := filepath.EvalSymlinks(d.File(lock))
	return err == nil && pid != os.Getpid() && slices.Contains(locks(pid, lock), resolved)
}

// locks returns the locks of that name that a process has open, also removed ones.
func locks(pid int, name string) []string {
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(fds, e.Name()))
		if err != nil {
			continue
		}
		target = strings.TrimSuffix(target, " (deleted)")
		if filepath.Base(target) == name && filepath.IsAbs(target) {
			paths = append(paths, target)
		}
	}
	return paths
}
