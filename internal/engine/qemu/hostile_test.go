package qemu

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// emulated is an engine without KVM and with a short monitor timeout.
func emulated(t *testing.T, wait time.Duration) *Engine {
	v := installed(t)
	v.Accel, v.MachineType = machine.AccelTCG, preferredMachine
	groups, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{verdict: v, img: "qemu-img", groups: groups, apart: os.Geteuid() == 0, log: slog.Default(), wait: wait, startWait: startWait}
}

// TestConfined: a guest that compromises QEMU finds nothing of the daemon's
// environment, a seccomp filter, no core dumps, and files that only their owner
// can access.
func TestConfined(t *testing.T) {
	t.Setenv("HOLT_TEST_SECRET", "hunter2")
	dir := filepath.Join(t.TempDir(), "m")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{ID: "x", Dir: dir, CPUs: 1, MemoryMB: 128, Network: true}
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	m, err := emulated(t, monitorWait).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	look := func(file string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", m.PID(), file))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if env := look("environ"); strings.Contains(env, "hunter2") || strings.Contains(env, "HOME=") {
		t.Errorf("environment: %q", env)
	}
	if status := look("status"); !strings.Contains(status, "Seccomp:\t2\n") {
		t.Errorf("no seccomp filter:\n%s", status)
	}
	for line := range strings.Lines(look("limits")) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && (f[4] != "0" || f[5] != "0") {
			t.Error(line)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	if os.Geteuid() == 0 {
		jailed(t, m.PID(), dir)
	}
}

// jailed checks the process and jail of a QEMU started by a root daemon.
func jailed(t *testing.T, pid int, dir string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(jail.User("qemu " + dir))
	for _, line := range []string{
		"Uid:\t" + strings.Repeat("\t"+id, 4)[1:], "Gid:\t" + strings.Repeat("\t"+id, 4)[1:], "NoNewPrivs:\t1",
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000",
	} {
		if !strings.Contains(string(status), line+"\n") {
			t.Errorf("not %q:\n%s", line, status)
		}
	}
	for _, ns := range []string{"net", "ipc", "uts", "mnt"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		its, err2 := os.Readlink(proc + "ns/" + ns)
		if err != nil || err2 != nil || own == its {
			t.Errorf("its namespace %s is %s, the test's %s: %v %v", ns, its, own, err, err2)
		}
	}
	for _, hidden := range []string{"/etc/passwd", "/root", "/proc/self", "/home", "/tmp/x", dir + "/" + machine.RecordFile, dir + "/" + monitorSocket} {
		if _, err := os.Lstat(proc + "root" + hidden); err == nil {
			t.Errorf("it sees %s", hidden)
		}
	}
	if _, err := os.Lstat(proc + "root" + dir + "/" + machine.InitrdFile); err != nil {
		t.Error(err)
	}
}

// A QEMU that does not answer does not block callers.
func TestStuckMonitor(t *testing.T) {
	spec := machine.Spec{ID: "x", Dir: t.TempDir(), CPUs: 1, MemoryMB: 128} // of 64 the kernel ends at once
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	e := emulated(t, monitorWait)
	m, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if err := unix.Kill(m.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stands(t, m.PID())
	e.wait = 10 * time.Millisecond
	if err := m.PowerDown(t.Context()); err == nil {
		t.Error("a stopped QEMU took the power button")
	}
	if err := m.Kill(); err != nil {
		t.Error(err)
	}
	<-m.Done()
}

// stands waits until every thread of a stopped process is stopped: on a busy
// machine one may still run and answer.
func stands(t *testing.T, pid int) {
	t.Helper()
	for standing, end := false, time.Now().Add(10*time.Minute); !standing; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop", pid)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(threads) == 0 {
			t.Fatalf("process %d has ended", pid)
		}
		standing = true
		for _, thread := range threads {
			b, err := os.ReadFile(thread)
			standing = standing && (err != nil || b[bytes.LastIndex(b, []byte(") "))+2] == 'T')
		}
	}
}

// A start is given up, and the program killed, if it does not answer as QEMU.
func TestStuckStart(t *testing.T) {
	e := emulated(t, monitorWait)
	e.startWait = 50 * time.Millisecond
	e.verdict.Binary = filepath.Join(t.TempDir(), "qemu-system-none")
	if err := os.WriteFile(e.verdict.Binary, []byte("#!/bin/sh\nexec sleep infinity\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{ID: "x", Dir: t.TempDir(), CPUs: 1, MemoryMB: 64, Kernel: e.verdict.Binary, Initrd: e.verdict.Binary}
	_, err := e.Start(t.Context(), spec)
	if holt.CodeOf(err) != holt.Timeout {
		t.Errorf("start: %v", err)
	}
	dir, err := machine.OpenDir(spec.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if locked, err := dir.Locked(); err != nil || locked {
		t.Errorf("something runs still: %v, %v", locked, err)
	}
}

// The temporary file of a process that was killed while it halved a log is removed.
func TestLogLeftovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	if err := os.WriteFile(path+".123", make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files: %v, %v", left, err)
	}
}

// On a busy host, a guest's kernel must not panic because of its timer.
func TestNoTimerCheck(t *testing.T) {
	for accel, want := range map[machine.Acceleration]bool{machine.AccelTCG: true, machine.AccelKVM: false} {
		if got := slices.Contains(strings.Fields(kernelArgs(machine.Spec{}, accel)), "no_timer_check"); got != want {
			t.Errorf("%s: %v", accel, got)
		}
	}
}

// FuzzTailLog: for any writes, the log stays within its limit and ends with the last bytes.
func FuzzTailLog(f *testing.F) {
	f.Add([]byte("\x1b[2J\r\n"), uint16(7), uint16(300))
	f.Add(bytes.Repeat([]byte{0}, 100), uint16(60000), uint16(60))
	f.Fuzz(func(t *testing.T, text []byte, size, times uint16) {
		path := filepath.Join(t.TempDir(), "log")
		l, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		piece := bytes.Repeat(append(text, '.'), int(size)/(len(text)+1)+1)
		piece = piece[:min(len(piece), 32<<10)] // what drain writes at once
		for range min(times, 200) {
			l.Write(piece)
		}
		l.Close()
		b, err := os.ReadFile(path)
		if err != nil || len(b) > maxLog || int64(len(b)) != l.size {
			t.Fatalf("%d bytes, counted %d, %v", len(b), l.size, err)
		}
		if times > 0 && !bytes.HasSuffix(b, piece) {
			t.Error("the end is missing")
		}
	})
}

// FuzzMachineTypes: only a versioned q35 is picked from any list.
func FuzzMachineTypes(f *testing.F) {
	f.Add("pc-q35-7.2           Standard PC (Q35 + ICH9, 2009)\npc-q35-10.0 new\nmicrovm x\n")
	f.Add("pc-q35-99999999999999999999.1 x\n")
	f.Fuzz(func(t *testing.T, help string) {
		if name := pickMachine(help); name != "" && !q35RE.MatchString(name+"\n") {
			t.Errorf("%q", name)
		}
	})
}
