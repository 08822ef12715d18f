package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// delegated is what DelegateSubgroup=holt-daemon does, which the systemd of Debian 12 does not know, and the tests.
const delegated = `#!/bin/sh -e
group=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/holt-daemon
mkdir $group
echo $$ >$group/cgroup.procs
exec /root/cgroup.test -test.v
`

// TestGroupsVersion2: where control groups are of version 2 they hold what is in them. Few hosts of tests have that, and
// every computer has: the tests of package cgroup run in one as the daemon does on a host, as a service
// that groups are delegated to, and one of each hog is bounded by the kernel there.
func TestGroupsVersion2(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	program := filepath.Join(t.TempDir(), "cgroup.test")
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", program, "holt/internal/engine/cgroup")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := v.Files.Write(ctx, "curie", "/root/cgroup.test", holt.WriteSpec{Mode: 0o755}, f); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Files.Write(ctx, "curie", "/root/service", holt.WriteSpec{Mode: 0o755}, strings.NewReader(delegated)); err != nil {
		t.Fatal(err)
	}
	said := v.says("curie", "systemd-run --quiet --wait --pipe -p Delegate=yes /root/service 2>&1")
	for _, want := range []string{
		"(version 2) for processors, memory, processes", "--- PASS: TestPut", "--- PASS: TestSweep",
		"--- PASS: TestBounds/memory", "--- PASS: TestBounds/processes", "--- PASS: TestBounds/processors",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("in the computer %q is not said:\n%s", want, said)
		}
	}
	v.remove("curie")
	endAll(t, v.process)
}
