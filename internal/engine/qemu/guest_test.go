package qemu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/engine/qemu"
)

// boot starts the test guest with kernel arguments, and ends it with the test.
func boot(t *testing.T, e *qemu.Engine, spec machine.Spec) machine.Machine {
	t.Helper()
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	spec.CPUs, spec.MemoryMB = 1, 128
	if spec.Dir == "" {
		spec.Dir = t.TempDir()
	}
	m, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(m.Console())
			t.Logf("console:\n%s", b[max(0, len(b)-2000):])
		}
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// until polls for conditions without a notification.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !yes(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func onConsole(m machine.Machine, text string) func() bool {
	return func() bool {
		b, err := os.ReadFile(m.Console())
		return err == nil && bytes.Contains(b, []byte(text))
	}
}

// checkHardware compares the guest's hardware and its record with the spec of
// TestFullHostPausesGuest.
func checkHardware(t *testing.T, e *qemu.Engine, m machine.Machine, dir string) {
	t.Helper()
	for _, want := range []string{"test.word=found", "holt.net=10.0.2.15/24,10.0.2.2,10.0.2.3", "vda has sectors: 131072"} {
		until(t, "the guest to see "+want, onConsole(m, want))
	}
	b, err := os.ReadFile(filepath.Join(dir, machine.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	var r machine.Record
	var hw qemu.Hardware
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(r.Hardware, &hw); err != nil {
		t.Fatal(err)
	}
	if r.Engine != e.Name() || r.Process.PID != m.PID() || hw.MachineType != e.Verdict().MachineType ||
		hw.Version == "" || hw.CPUModel == "" || hw.MemoryMB != 128 || len(hw.Devices) != 6 {
		t.Errorf("record:\n%s", b)
	}
}

// A guest that writes to its console without end does not fill the host's disk.
func TestConsoleIsBounded(t *testing.T) {
	const bound = 1 << 20
	dir := t.TempDir() // where an earlier machine wrote much, since a guest writes slowly
	if err := os.WriteFile(filepath.Join(dir, machine.ConsoleFile), make([]byte, bound-10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	m := boot(t, open(t), machine.Spec{Dir: dir, Args: []string{"test.flood"}})
	var last, most int64
	until(t, "the console to be cut", func() bool {
		info, err := os.Stat(m.Console())
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
		cut := info.Size() < last
		last = info.Size()
		return cut
	})
	if most > bound {
		t.Errorf("the console's log grew to %d bytes", most)
	}
}

// journal collects a log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.b.String(), text)
}

// A guest pauses when the host's disk is full, and loses nothing.
func TestFullHostPausesGuest(t *testing.T) {
	var log journal
	e, err := qemu.Open(t.Context(), qemu.Options{Groups: groups(t), Apart: []string{os.TempDir()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	full := tinyDisk(t)
	disk := filepath.Join(full, "root.qcow2")
	if err := e.CreateDisk(t.Context(), disk, machine.Base{Path: sparse(t, 10)}, 64); err != nil {
		t.Fatal(err)
	}
	filler := fill(t, full, 8)
	dir := t.TempDir()
	m := boot(t, e, machine.Spec{Dir: dir, Disk: disk, Network: true, Args: []string{"test.write", "test.word=found"}})
	checkHardware(t, e, m, dir)
	until(t, "the disk to be full", func() bool { return log.has("full=true") })
	// A new daemon adopts the paused machine and resumes it in the same way.
	m.Release()
	if m, err = e.Adopt(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Release)
	if onConsole(m, "wrote all")() {
		t.Error("the guest wrote what there was no room for")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	until(t, "the guest to go on", onConsole(m, "wrote all: <nil>"))
}

func TestAdoptControlledMachine(t *testing.T) {
	e := open(t)
	dir := t.TempDir()
	m := boot(t, e, machine.Spec{Dir: dir})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if other, err := open(t).Adopt(ctx, dir); err == nil {
		other.Release()
		t.Error("two daemons control one machine")
	}
	if err := m.PowerDown(t.Context()); err != nil {
		t.Errorf("the first one lost control: %v", err)
	}
}

// A snapshot that does not fit on the host's disk leaves no files, and the guest continues.
func TestSnapshotOnFullHost(t *testing.T) {
	e := open(t)
	m := boot(t, e, machine.Spec{Dir: t.TempDir()})
	if _, err := machinetest.Ask(t.Context(), m, "fill 32 1"); err != nil {
		t.Fatal(err)
	}
	full := tinyDisk(t) // smaller than what the guest's memory holds
	image := filepath.Join(full, "image")
	for _, leave := range []int64{90, 1} { // MiB: not enough for all, and not even to begin
		filler := fill(t, full, leave)
		if _, err := m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: image}); holt.CodeOf(err) != holt.OutOfSpace {
			t.Errorf("%d MiB are free: %v", leave, err)
		}
		if _, err := os.Stat(image); err == nil {
			t.Error("something is left")
		}
		if _, err := machinetest.Ask(t.Context(), m, "count"); err != nil {
			t.Error(err)
		}
		os.Remove(filler)
	}
}
