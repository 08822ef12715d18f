package cgroup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of groups in a base.
const (
	parentGroup     = "holt"
	backgroundGroup = "holt-background"
	daemonGroup     = "holt-daemon"
)

var parents = [...]string{parentGroup, backgroundGroup}

// Tree is the control groups of machines. A nil Tree limits nothing.
type Tree struct {
	host host
	in   []hierarchy
}

// Open prepares the parents of machines' groups. In version 2 it may move this
// process into a group of its own beside them.
//
// Errors: Unsupported, with the reason, if there are no usable control groups.
func Open() (*Tree, error) { return open(host{"/", os.Getpid()}) }

func open(h host) (*Tree, error) {
	t := &Tree{host: h}
	found, err := h.find()
	if err != nil {
		return nil, none(err.Error())
	}
	var refused error
	for _, at := range found {
		at.controllers = slices.DeleteFunc(at.controllers, t.has)
		if len(at.controllers) == 0 {
			continue
		}
		if err := at.prepare(h.pid); err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		t.in = append(t.in, at)
	}
	switch {
	case len(t.in) > 0:
		return t, nil
	case refused != nil:
		return nil, none(refused.Error())
	}
	return nil, none("holt may not change any control group")
}

// Look describes what [Open] would limit, and changes nothing.
func Look() (string, error) {
	t := &Tree{host: host{"/", os.Getpid()}}
	found, err := t.host.find()
	if err != nil || len(found) == 0 {
		return "", none("holt may not change any control group")
	}
	for _, at := range found {
		if at.controllers = slices.DeleteFunc(at.controllers, t.has); len(at.controllers) > 0 {
			t.in = append(t.in, at)
		}
	}
	return t.String(), nil
}

// has reports whether a controller has a hierarchy.
func (t *Tree) has(controller string) bool {
	return slices.ContainsFunc(t.in, func(h hierarchy) bool { return slices.Contains(h.controllers, controller) })
}

// String describes what is limited.
func (t *Tree) String() string {
	names := map[string]string{"cpu": "processors", "memory": "memory", "pids": "processes", "io": "disk"}
	var what []string
	version := map[bool]bool{}
	for _, h := range t.in {
		version[h.v2] = true
	}
	for _, c := range wanted {
		if t.has(c) {
			what = append(what, names[c])
		}
	}
	said := "version 1"
	switch {
	case version[true] && version[false]:
		said = "versions 1 and 2"
	case version[true]:
		said = "version 2"
	}
	return fmt.Sprintf("each computer has a control group (%s) for %s", said, strings.Join(what, ", "))
}

// Name returns the name of the group of the machine in a directory.
func Name(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("machine-%x", sum[:10])
}

// prepare creates the parents of machines' groups.
func (h hierarchy) prepare(pid int) error {
	if err := h.delegate(h.base); err != nil {
		if !h.own || !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := h.stepAside(pid); err != nil {
			return err
		}
	}
	for _, name := range parents {
		dir := filepath.Join(h.base, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := h.delegate(dir); err != nil {
			return err
		}
		for _, s := range h.shares(name == backgroundGroup) {
			if err := s.write(dir); err != nil && !s.lax {
				return err
			}
		}
	}
	return nil
}

// stepAside moves this process out of the base, which may then have subgroups with limits.
func (h hierarchy) stepAside(pid int) error {
	own := filepath.Join(h.base, daemonGroup)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := join(own, pid); err != nil {
		return err
	}
	err := h.delegate(h.base)
	if err != nil { // other processes are in the base too
		err = errors.Join(fmt.Errorf("other programs are in its control group: %w", err), join(h.base, pid), os.Remove(own))
	}
	return err
}

// delegate enables the controllers for the subgroups of a version 2 group.
func (h hierarchy) delegate(dir string) error {
	if !h.v2 {
		return nil
	}
	path := filepath.Join(dir, "cgroup.subtree_control")
	on := words(path)
	for _, c := range h.controllers {
		if slices.Contains(on, c) {
			continue
		}
		if err := os.WriteFile(path, []byte("+"+c), 0); err != nil {
			return err
		}
	}
	return nil
}

// Limits are the limits of a machine.
type Limits struct {
	CPUs        float64 // maximum number of processors
	MemoryBytes int64
	Processes   int  // and threads
	Background  bool // gets processor time that nothing else needs
}

// Put puts a process into the group of the machine in dir, which it creates if
// needed, with these limits. Limits that the host does not support are left out
// and returned as errors.
func (t *Tree) Put(dir string, pid int, l Limits) error {
	if t == nil {
		return nil
	}
	before := t.Groups(dir, pid)
	var errs []error
	for _, h := range t.in {
		errs = append(errs, h.put(h.group(dir, l.Background), pid, l))
	}
	for _, old := range before { // groups from a daemon with another base
		_ = unix.Rmdir(old) // EBUSY: the group in use
	}
	return errors.Join(errs...)
}

// putTries is how often Put creates a group again that another daemon's Sweep removes.
const putTries = 5

func (h hierarchy) put(group string, pid int, l Limits) (err error) {
	for range putTries {
		if err = os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Join at once: a group with a process is not removed.
		if err = join(group, pid); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	bad := []error{err}
	for _, s := range h.limits(l) {
		if err == nil {
			bad = append(bad, s.write(group))
		}
	}
	return errors.Join(bad...)
}

// Join adds another process to the group of the machine in dir, if it has one.
func (t *Tree) Join(dir string, pid int) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, h := range t.in {
		for _, background := range [...]bool{false, true} {
			if group := h.group(dir, background); isDir(group) {
				errs = append(errs, join(group, pid))
			}
		}
	}
	return errors.Join(errs...)
}

// busyPoll is how often Remove looks for the end of the last process.
const busyPoll = 2 * time.Millisecond

// Remove removes the group of the machine in dir, which has ended. It waits at
// most wait for the last process. A group that is not empty then stays until
// the next Remove or [Tree.Sweep].
func (t *Tree) Remove(dir string, wait time.Duration) {
	if t == nil {
		return
	}
	for end := time.Now().Add(wait); ; time.Sleep(busyPoll) {
		busy := false
		for _, h := range t.in {
			for _, background := range [...]bool{false, true} {
				busy = errors.Is(unix.Rmdir(h.group(dir, background)), unix.EBUSY) || busy
			}
		}
		if !busy || !time.Now().Before(end) {
			return
		}
	}
}

// Sweep removes groups without processes, which machines left that ended while no daemon ran.
func (t *Tree) Sweep() {
	if t == nil {
		return
	}
	for _, h := range t.in {
		for _, name := range parents {
			entries, _ := os.ReadDir(filepath.Join(h.base, name))
			for _, e := range entries {
				if e.IsDir() {
					_ = unix.Rmdir(filepath.Join(h.base, name, e.Name())) // EBUSY: in use
				}
			}
		}
	}
}

func (h hierarchy) group(dir string, background bool) string {
	parent := parentGroup
	if background {
		parent = backgroundGroup
	}
	return filepath.Join(h.base, parent, Name(dir))
}

// Groups returns the directories of the groups of the machine in dir that a process is in.
func (t *Tree) Groups(dir string, pid int) (groups []string) {
	own, err := os.ReadFile(filepath.Join(t.host.root, fmt.Sprintf("proc/%d/cgroup", pid)))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(t.host.root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 || !strings.HasPrefix(g[0], "cgroup") {
			continue
		}
		controllers := strings.Split(g[2], ",")
		if g[0] == "cgroup2" {
			controllers = []string{""}
		}
		for _, c := range controllers {
			if at := base(filepath.Join(t.host.root, f[4]), f[3], groupOf(string(own), c)); filepath.Base(at) == Name(dir) {
				groups = append(groups, at)
			}
		}
	}
	return groups
}

func join(group string, pid int) error {
	err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // the process has ended
	}
	return err
}
