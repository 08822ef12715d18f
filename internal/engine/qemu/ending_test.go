package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// TestEnded: Ended uses QEMU's trace and the console, of the last machine only.
func TestEnded(t *testing.T) {
	const (
		runs     = "runstate_set current_run_state 6 (prelaunch) new_state 9 (running)\n"
		ends     = "runstate_set current_run_state 9 (running) new_state 11 (shutdown)\n"
		asked    = "qemu_system_shutdown_request reason=6\n"
		began    = "\n[holt: machine started at 2026-11-26T14:35:22Z]\n"
		panicked = "[    9.1] Kernel panic - not syncing: sysrq triggered crash\x1b[0m\r\n[    9.2] CPU: 0\r\n"
	)
	for _, is := range []struct {
		name, trace, console string
		want                 machine.Ending
	}{
		{"killed", runs, began, machine.Ending{}},
		{"powered off", runs + asked + ends, began, machine.Ending{Kind: machine.EndOff}},
		{"rebooted", runs + ends, began + "hello\r\n", machine.Ending{Kind: machine.EndReboot}},
		{"panicked", runs + ends, began + panicked, machine.Ending{Kind: machine.EndPanic, Panic: "sysrq triggered crash[0m"}},
		{"rebooted after an earlier panic", runs + ends, began + panicked + began, machine.Ending{Kind: machine.EndReboot}},
		{"killed at the host's shutdown", runs + ends, began + panicked, machine.Ending{}},
		{"with much to say", runs + ends, began + panicMark + strings.Repeat("a", 1000), machine.Ending{Kind: machine.EndPanic, Panic: strings.Repeat("a", 160) + "… (1000 bytes)"}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{endFile: is.trace, machine.ConsoleFile: is.console} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		boot, err := machine.BootID()
		if err != nil {
			t.Fatal(err)
		}
		if is.name == "killed at the host's shutdown" {
			boot = "former"
		}
		record := fmt.Sprintf(`{"engine":"qemu-kvm","process":{"pid":7,"boot_id":%q}}`, boot)
		if err := os.WriteFile(filepath.Join(dir, machine.RecordFile), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&Engine{}).Ended(dir); got != is.want {
			t.Errorf("%s: %+v, want %+v", is.name, got, is.want)
		}
	}
	if got := (&Engine{}).Ended(t.TempDir()); got != (machine.Ending{}) {
		t.Errorf("never started: %+v", got)
	}
}

// TestEndedBySignal: SIGTERM to QEMU is not a reboot by the guest.
func TestEndedBySignal(t *testing.T) {
	e := emulated(t, monitorWait)
	spec := machine.Spec{ID: "x", Dir: t.TempDir(), CPUs: 1, MemoryMB: 128}
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	m, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	if err := unix.Kill(m.PID(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-m.Done()
	if got := e.Ended(spec.Dir); got != (machine.Ending{}) {
		t.Errorf("ended %+v", got)
	}
}

// TestTrimEnd: the trace of a machine that is resumed often takes little room and keeps its end.
func TestTrimEnd(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, endFile)
	if err := os.WriteFile(trace, []byte(strings.Repeat("runs\n", 1<<20)+"runstate_set (shutdown)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	(&guest{Hold: machine.Hold{Dir: &machine.Dir{Path: dir}}}).trimEnd()
	var st unix.Stat_t
	if err := unix.Stat(trace, &st); err != nil || st.Blocks*512 > 2*maxEnd {
		t.Errorf("the trace takes %d bytes, %v", st.Blocks*512, err)
	}
	if got := (&Engine{}).Ended(dir); got.Kind != machine.EndReboot {
		t.Errorf("ended %+v", got)
	}
}
