package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/daemon"
)

// reboots returns a command that calls reboot(2) in its machine, which of a local one ends the machine only.
func reboots(how int) string {
	return fmt.Sprintf("perl -e 'syscall(%d, %d, %d, %d, 0)'; sleep 1000", unix.SYS_REBOOT, uint(unix.LINUX_REBOOT_MAGIC1), unix.LINUX_REBOOT_MAGIC2, how)
}

// comes waits for a computer to be in a state, with a reason that holds a word.
func comes(t *testing.T, d *daemon.Daemon, name string, state holt.ComputerState, reason string) holt.Computer {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := d.Computers().Get(t.Context(), name)
		if err == nil && c.State == state && strings.Contains(c.Reason, reason) {
			return c
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v %v; want it %s: %s", c, err, state, reason)
		}
	}
}

// TestReboot: a computer that is rebooted from inside runs again by itself, also if the daemon ends in between; one that is
// powered off stays stopped. Its runs say why they ended.
func TestReboot(t *testing.T) {
	dir := home(t)
	cfg := config(t, dir)
	d := open(t, cfg)
	before := create(t, d, holt.ComputerSpec{Name: "einstein"})
	if res := run(t, d, "einstein", reboots(unix.LINUX_REBOOT_CMD_RESTART)); res.State != holt.RunLost || res.Reason != holt.RunRebooted {
		t.Errorf("the run that rebooted: %+v", res.Run)
	}
	after := comes(t, d, "einstein", holt.ComputerRunning, "")
	for ; after.StartedAt.Equal(*before.StartedAt); time.Sleep(time.Millisecond) { // its end is being recorded
		after = comes(t, d, "einstein", holt.ComputerRunning, "")
	}
	if after.WokenBy != "" {
		t.Errorf("it was woken: %+v", after)
	}
	succeeds(t, d, "einstein", "true")

	if res := run(t, d, "einstein", reboots(unix.LINUX_REBOOT_CMD_POWER_OFF)); res.State != holt.RunLost || res.Reason != holt.RunPoweredOff {
		t.Errorf("the run that powered off: %+v", res.Run)
	}
	comes(t, d, "einstein", holt.ComputerStopped, "powered off from inside")
	succeeds(t, d, "einstein", "true") // wakes it

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines(t, dir) { // it reboots while no daemon looks
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "computers", string(before.ID), "ended"), []byte("reboot"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = up(t, cfg)
	comes(t, d, "einstein", holt.ComputerRunning, "")
	succeeds(t, d, "einstein", "true")
}
