package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt"
)

// tree opens the control groups of this host.
func tree(t *testing.T) *Tree {
	t.Helper()
	all, err := Open()
	if err != nil {
		t.Fatalf("the tests of groups need root and a host whose control groups may be changed: %v", err)
	}
	return all
}

// begin starts a script in a group of its own. The script waits for a line before it begins.
func begin(t *testing.T, all *Tree, dir, script string, l Limits) (cmd *exec.Cmd, goOn func()) {
	t.Helper()
	cmd = exec.Command("sh", "-c", "read -r line; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		all.Remove(dir, time.Second)
		for _, group := range groups(all, dir) {
			t.Errorf("%s is left", group)
		}
	})
	if err := all.Put(dir, cmd.Process.Pid, l); err != nil {
		t.Fatal(err)
	}
	return cmd, func() {
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
}

// groups returns the existing groups of a machine.
func groups(all *Tree, dir string) (found []string) {
	for _, h := range all.in {
		for _, background := range []bool{false, true} {
			if at := h.group(dir, background); isDir(at) {
				found = append(found, at)
			}
		}
	}
	return found
}

const mib = 1 << 20

// TestPut: a process is in a group of its machine in every hierarchy, limits
// change while it runs, a second process joins, another daemon finds the group,
// and it is removed when both have ended.
func TestPut(t *testing.T) {
	all, dir := tree(t), t.TempDir()
	cmd, _ := begin(t, all, dir, "", Limits{CPUs: 1.5, MemoryBytes: 64 * mib, Processes: 50})
	if got := all.Groups(dir, cmd.Process.Pid); len(got) != len(all.in) {
		t.Errorf("it is in %v of %v", got, all.in)
	}
	if err := all.Put(dir, cmd.Process.Pid, Limits{CPUs: 2.5, MemoryBytes: 128 * mib, Processes: 60}); err != nil {
		t.Fatal(err)
	}
	for _, h := range all.in {
		for _, s := range h.limits(Limits{CPUs: 2.5, MemoryBytes: 128 * mib, Processes: 60}) {
			got, err := os.ReadFile(filepath.Join(h.group(dir, false), s.names[0]))
			if err != nil || strings.TrimSpace(string(got)) != s.value {
				t.Errorf("%s is %q, not %q: %v", s.names[0], got, s.value, err)
			}
		}
	}
	other := tree(t) // as a daemon that comes later
	second := exec.Command("sleep", "600")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	if err := other.Join(dir, second.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := other.Groups(dir, second.Process.Pid); len(got) != len(all.in) {
		t.Errorf("who has joined is in %v", got)
	}
	cmd.Process.Kill()
	cmd.Wait()
	other.Remove(dir, 0)
	other.Sweep()
	if len(groups(all, dir)) != len(all.in) {
		t.Error("a group is gone in which a process lives")
	}
	second.Process.Kill()
	second.Wait()
	other.Remove(dir, time.Second)
	if got := groups(all, dir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// TestSweep: the group of a machine that ended while no daemon ran is removed,
// even if a process is being put into it.
func TestSweep(t *testing.T) {
	all, dir := tree(t), t.TempDir()
	cmd, _ := begin(t, all, dir, "", Limits{CPUs: 1, MemoryBytes: 64 * mib, Processes: 50, Background: true})
	cmd.Process.Kill()
	cmd.Wait()
	if len(groups(all, dir)) != len(all.in) {
		t.Error("there are no groups")
	}
	all.Sweep()
	if got := groups(all, dir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
				return
			default:
				all.Sweep()
			}
		}
	}()
	cmd, _ = begin(t, all, dir, "", Limits{CPUs: 1, MemoryBytes: 64 * mib, Processes: 50})
	close(stop)
	<-over
	if got := all.Groups(dir, cmd.Process.Pid); len(got) != len(all.in) {
		t.Errorf("it is in %v", got)
	}
}

// TestBounds: a process cannot exceed its limits.
func TestBounds(t *testing.T) {
	all := tree(t)
	t.Log(all)
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !all.has(c) {
			t.Fatalf("the tests of groups need the controller %s", c)
		}
	}
	t.Run("memory", func(t *testing.T) {
		cmd, goOn := begin(t, all, t.TempDir(), "exec tail /dev/zero", Limits{CPUs: 1, MemoryBytes: 32 * mib, Processes: 50})
		goOn()
		var end *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &end) || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("who takes all memory ends with %v", err)
		}
	})
	t.Run("processes", func(t *testing.T) {
		cmd, goOn := begin(t, all, t.TempDir(), "for n in 1 2 3 4 5 6 7 8; do sleep 600 & done; exit 9", Limits{CPUs: 1, MemoryBytes: 64 * mib, Processes: 4})
		goOn()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() == 9 {
			t.Errorf("eight processes were begun where four may be: %v", err)
		}
	})
	t.Run("processors", func(t *testing.T) {
		cmd, goOn := begin(t, all, t.TempDir(), "exec timeout 1 sh -c 'while :; do :; done'", Limits{CPUs: 0.2, MemoryBytes: 64 * mib, Processes: 50})
		goOn()
		began := time.Now()
		cmd.Wait()
		took, used := time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
		if used > took/2 {
			t.Errorf("of a fifth of a processor it took %v in %v", used, took)
		}
	})
}

// TestFind: the hierarchies found in the files of different hosts.
func TestFind(t *testing.T) {
	const hybrid = "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n"
	const unified = "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		name, mounts, own string
		files             map[string]string
		want              []hierarchy
	}{
		{"none", "22 1 254:0 / / rw - ext4 /dev/vda rw\n", "0::/\n", nil, nil},
		{"version 1 in a group", hybrid, "2:cpu,cpuacct:/\n4:memory:/box/1\n0::/\n", map[string]string{"cg/cpu/x": "", "cg/memory/box/1/x": "", "cg/unified/cgroup.controllers": "hugetlb"}, []hierarchy{
			{base: "/cg/cpu", controllers: []string{"cpu"}}, {base: "/cg/memory/box/1", controllers: []string{"memory"}},
		}},
		{"version 1 in a container that sees a part", strings.Replace(hybrid, "0:32 /", "0:32 /box", 1), "4:memory:/box/1\n", map[string]string{"cg/memory/1/x": ""}, []hierarchy{
			{base: "/cg/memory/1", controllers: []string{"memory"}},
		}},
		{"a service", unified, "0::/system.slice/holt.service\n", map[string]string{"cg/cgroup.controllers": "cpuset cpu io memory pids\n", "cg/system.slice/holt.service/cgroup.controllers": "cpu memory pids\n"}, []hierarchy{
			{v2: true, base: "/cg", controllers: []string{"cpu", "io", "memory", "pids"}},
		}},
		{"a container", unified, "0::/\n", map[string]string{"cg/cgroup.controllers": "memory pids\n"}, []hierarchy{
			{v2: true, own: true, base: "/cg", controllers: []string{"memory", "pids"}},
		}},
		{"a daemon in a group for it", unified, "0::/svc/holt-daemon\n", map[string]string{"cg/svc/holt-daemon/x": "", "cg/svc/cgroup.controllers": "cpu memory\n"}, []hierarchy{
			{v2: true, base: "/cg/svc", controllers: []string{"cpu", "memory"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				write(t, filepath.Join(root, name), text)
			}
			write(t, filepath.Join(root, "proc/self/mountinfo"), c.mounts)
			write(t, filepath.Join(root, "proc/self/cgroup"), c.own)
			got, err := host{root, 7}.find()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got, c.want, func(a, b hierarchy) bool {
				return a.v2 == b.v2 && a.own == b.own && a.base == filepath.Join(root, b.base) && slices.Equal(a.controllers, b.controllers)
			}) {
				t.Errorf("got %+v, not %+v", got, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestNone: without control groups Open returns the reason, and a nil Tree works.
func TestNone(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/self/mountinfo"), "")
	write(t, filepath.Join(root, "proc/self/cgroup"), "0::/\n")
	all, err := open(host{root, 7})
	if holt.CodeOf(err) != holt.Unsupported || all != nil {
		t.Fatalf("got %v, %v", all, err)
	}
	if err := errors.Join(all.Put("/d", 1, Limits{}), all.Join("/d", 1)); err != nil {
		t.Error(err)
	}
	all.Remove("/d", time.Second)
	all.Sweep()
	if _, err := os.Stat(filepath.Join(root, "d")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
