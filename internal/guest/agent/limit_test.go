package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestShares: for machines of any size, all runs leave a reserve, and one run
// leaves something to others.
func TestShares(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ memory, tasks, all, one int64 }{
		{220 * mib, 1700, 156, 124}, {970 * mib, 7700, 848, 816}, {16000 * mib, 1 << 15, 15488, 15456},
	} {
		all, one := shares(c.memory, c.tasks)
		if all.memory/mib != c.all || one.memory/mib != c.one || all.tasks >= c.tasks*4/5 || one.tasks*2 > all.tasks || one.tasks < c.tasks/3 {
			t.Errorf("%d MiB: %+v %+v", c.memory/mib, all, one)
		}
	}
}

// TestLimits: the limits of all runs are set with the first run, and each run
// gets its own; an agent without a machine sets none.
func TestLimits(t *testing.T) {
	dir := t.TempDir() // in place of cgroup2, whose files would be there already
	read := func(name string) int64 {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	make := func(group string) {
		for _, file := range []string{"memory.max", "pids.max", "cgroup.procs"} {
			err := os.MkdirAll(filepath.Join(dir, group), 0o700)
			if err = errors.Join(err, os.WriteFile(filepath.Join(dir, group, file), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, group := range []string{".", "containers", "run_a"} {
		make(group)
	}
	free := &groups{dir: dir}
	if free.of("run_a").share != nil {
		t.Error("what has no machine of its own is limited")
	}
	g := &groups{dir: dir}
	g.limit()
	if all, one := read("memory.max"), read("containers/memory.max"); one >= all || one < 1 || read("run_a/memory.max") != one {
		t.Errorf("all %d, one %d", all, one)
	}
	if all, one := read("pids.max"), read("containers/pids.max"); one >= all || one < 1 {
		t.Errorf("all %d, one %d tasks", all, one)
	}
	make("run_b")
	done, err := g.of("run_b").join(new(syscall.SysProcAttr))
	if err != nil {
		t.Fatal(err)
	}
	done()
	if read("run_b/memory.max") != read("containers/memory.max") || read("run_b/pids.max") != read("containers/pids.max") {
		t.Error("a run that begins has no limits")
	}
	for _, name := range []string{".", "run_b"} {
		make(name)
	}
	g.limits.memory-- // as if there had been less
	if one := g.of("run_c").share.memory; read("memory.max") <= one || read("run_b/memory.max") != one {
		t.Error("more memory changes nothing for what runs")
	}
}
