package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt/machine"
)

// TestEnded: how a machine ended is known from what QEMU traced and its guest said, of the last machine only.
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
		{"with much to say", runs + ends, began + panicMark + strings.Repeat("a", 1000), machine.Ending{Kind: machine.EndPanic, Panic: strings.Repeat("a", 160) + "… (1000 bytes)"}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{endFile: is.trace, machine.ConsoleFile: is.console} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := (&Engine{}).Ended(dir); got != is.want {
			t.Errorf("%s: %+v, want %+v", is.name, got, is.want)
		}
	}
	if got := (&Engine{}).Ended(t.TempDir()); got != (machine.Ending{}) {
		t.Errorf("never started: %+v", got)
	}
}
