package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stray is a machine's process that no daemon controls.
type Stray struct {
	Dir     string  // the machine's directory, which may have been removed
	Process Process // its identity

	kill func(Process) error
}

// Kill kills it and returns when it is gone.
func (s Stray) Kill() error { return s.kill(s.Process) }

// FindStrays returns the processes, other than this one, that hold the lock of
// a machine directory under root and for which is returns true. It does not
// find processes that may not be inspected (another user's). kill is how the
// engine ends a stray: [Process.Kill], or more.
func FindStrays(root string, is func(Process) bool, kill func(Process) error) ([]Stray, error) {
	return FindHolders(root, LockFile, is, kill)
}

// FindHolders is FindStrays for a lock file of another name.
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
			continue // it has ended
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

// HeldBy reports whether a process has the directory's lock file of that name
// open. For this process it returns false.
func (d *Dir) HeldBy(pid int, lock string) bool {
	resolved, err := filepath.EvalSymlinks(d.File(lock))
	return err == nil && pid != os.Getpid() && slices.Contains(locks(pid, lock), resolved)
}

// locks returns the lock files of that name that a process has open, including removed ones.
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
