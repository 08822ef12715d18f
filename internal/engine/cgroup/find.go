package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// wanted are the controllers in use, by the names of both versions; version 1 calls the last blkio.
var wanted = []string{"cpu", "memory", "pids", "io"}

// hierarchy is a cgroup hierarchy with groups of machines.
type hierarchy struct {
	v2          bool
	own         bool     // the daemon is in base
	base        string   // directory of the parents of machines' groups
	controllers []string // of [wanted]
}

// host is the root under which hierarchies are found; tests use another.
type host struct {
	root string // prefix of /proc and of mounted hierarchies
	pid  int
}

// find returns the hierarchies in which groups can be created.
func (h host) find() ([]hierarchy, error) {
	mounts, err := os.ReadFile(filepath.Join(h.root, "proc/self/mountinfo"))
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(h.root, "proc/self/cgroup"))
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		top := filepath.Join(h.root, f[4])
		switch g[0] {
		case "cgroup":
			found = append(found, version1(top, f[3], strings.Split(g[2], ","), string(own))...)
		case "cgroup2":
			found = append(found, version2(top, f[3], string(own))...)
		}
	}
	return found, nil
}

// version1 returns the hierarchy mounted at top, where its part root is mounted.
func version1(top, root string, options []string, own string) []hierarchy {
	at := hierarchy{}
	for _, o := range options {
		name := o
		if o == "blkio" {
			name = "io"
		}
		if slices.Contains(wanted, name) {
			at.controllers = append(at.controllers, name)
			at.base = base(top, root, groupOf(own, o))
		}
	}
	if len(at.controllers) == 0 || unix.Access(at.base, unix.W_OK) != nil {
		return nil
	}
	return []hierarchy{at}
}

// version2 returns the hierarchy mounted at top. Subgroups cannot go into the
// daemon's own group, as assigned by a service manager: a group with subgroups
// may have no processes, and the next daemon would not start. So the parent of
// that group is used only if the group is [daemonGroup], and the root
// otherwise.
func version2(top, root, own string) []hierarchy {
	at, mine := top, base(top, root, groupOf(own, ""))
	if filepath.Base(mine) == daemonGroup {
		at = filepath.Dir(mine)
	}
	has := slices.DeleteFunc(words(filepath.Join(at, "cgroup.controllers")), func(c string) bool { return !slices.Contains(wanted, c) })
	if len(has) == 0 || unix.Access(at, unix.W_OK) != nil {
		return nil
	}
	return []hierarchy{{v2: true, own: at == mine, base: at, controllers: has}}
}

// base returns the path of a group of a hierarchy.
func base(top, root, group string) string {
	if inside, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/")); ok {
		group = inside
	} else {
		group = "" // the group is outside the mounted part
	}
	if at := filepath.Join(top, group); isDir(at) {
		return at
	}
	return top
}

// groupOf returns the group for a controller from the text of
// proc_pid_cgroup(5); controller "" means version 2.
func groupOf(text, controller string) string {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) && (controller != "" || f[0] == "0") {
			return f[2]
		}
	}
	return "/"
}

func words(path string) []string {
	b, _ := os.ReadFile(path) // a missing file means no groups
	return strings.Fields(string(b))
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// none is the error when nothing can be limited.
func none(why string) error {
	return holt.Errorf(holt.Unsupported, "cannot limit the resources of computers: %s", why).
		WithHint("run holt as root, or as a service of systemd with Delegate=yes and DelegateSubgroup=%s", daemonGroup)
}
