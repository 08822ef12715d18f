package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// wanted are the controllers that are used, as both versions but for the last call them.
var wanted = []string{"cpu", "memory", "pids", "io"}

// hierarchy is one in which machines have groups.
type hierarchy struct {
	v2          bool
	own         bool     // base has the daemon in it
	base        string   // the directory that has the parents of machines' groups
	controllers []string // of [wanted]
}

// host is where hierarchies are looked for; tests look elsewhere.
type host struct {
	root string // of /proc, and of mounted hierarchies
	pid  int
}

// find returns the hierarchies in which groups may be made.
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

// version1 is the hierarchy mounted at top, whose part root is seen there.
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

// version2 is the hierarchy mounted at top. The group that a service manager has put the daemon into never gets groups
// in it: it could have no process any more, and the next daemon would not start. So that is used only if the daemon
// is in [daemonGroup] there, and else the top.
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

// base is where a group of a hierarchy is seen.
func base(top, root, group string) string {
	if inside, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/")); ok {
		group = inside
	} else {
		group = "" // it is of another part than the one that is mounted
	}
	if at := filepath.Join(top, group); isDir(at) {
		return at
	}
	return top
}

// groupOf returns the group that the text of proc_pid_cgroup(5) has for a controller; "": of version 2.
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
	b, _ := os.ReadFile(path) // none: there are none
	return strings.Fields(string(b))
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// none is the error where nothing can be bounded.
func none(why string) error {
	return holt.Errorf(holt.Unsupported, "what a computer takes of this machine cannot be bounded: %s", why).
		WithHint("run holt as root, or as a service of systemd with Delegate=yes and DelegateSubgroup=%s", daemonGroup)
}
