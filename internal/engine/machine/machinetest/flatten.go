package machinetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
)

// testFlatten: disks below a running machine that writes, and below its forks,
// are replaced by one. The machines read the same content, close the removed
// files, and can be snapshot, forked and flattened again.
func testFlatten(t *testing.T, w *world) {
	rounds := 1
	if soak() {
		rounds = 5
	}
	w.ask(t, w.m, "churn")
	var at snapshot
	for i := range 4 {
		w.says(t, w.m, fmt.Sprint("write ", 10+i, " layer", i), fmt.Sprint("layer", i))
		at = w.snapshot(t, w.m, nil)
	}
	reads := func(m machine.Machine) {
		t.Helper()
		for i := range 4 {
			w.says(t, m, fmt.Sprint("read ", 10+i), fmt.Sprint("layer", i))
		}
		w.says(t, m, "verify", "")
	}
	fork := w.forks(t, at, 1)[0]
	for range rounds {
		under := w.beneath(t, at.disk, 2)
		if err := w.engine.FlattenDisk(t.Context(), under, at.disk, w.path("never")); holt.CodeOf(err) != holt.Conflict && holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("the other way round: %v", err)
		}
		merged := w.path("merged")
		if err := w.engine.FlattenDisk(t.Context(), at.disk, under, merged); err != nil {
			t.Fatal(err)
		}
		gone := []string{under, w.beneath(t, at.disk, 1)}
		if err := os.Rename(merged, at.disk); err != nil {
			t.Fatal(err)
		}
		w.freeze(t, at.disk)
		for _, disk := range gone {
			delete(w.frozen, disk)
			if err := os.Remove(disk); err != nil {
				t.Fatal(err)
			}
		}
		reads(w.m) // it still has the old files open
		for _, m := range []machine.Machine{w.m, fork} {
			for range 2 { // repeating does no harm
				if err := m.Reopen(t.Context()); err != nil {
					t.Fatal(err)
				}
				letsGo(t, m)
				reads(m)
			}
		}
		next := w.snapshot(t, w.m, nil)
		if err := w.m.Reopen(t.Context()); err != nil { // an overlay that QEMU opened itself gets a base by file name
			t.Fatal(err)
		}
		forked := w.forks(t, next, 1)[0]
		reads(forked)
		if err := forked.Kill(); err != nil {
			t.Error(err)
		}
		if rounds > 1 {
			w.snapshot(t, w.m, nil)
			at = w.snapshot(t, w.m, nil)
		}
	}
	w.ask(t, w.m, "calm")
	reads(w.m)
	if err := fork.Kill(); err != nil {
		t.Error(err)
	}
	w.alive(t, w.m)
}

// beneath returns the disk n levels below another.
func (w *world) beneath(t *testing.T, disk string, n int) string {
	t.Helper()
	for range n {
		base, err := w.engine.DiskBase(t.Context(), disk)
		if err != nil || base.Format != "qcow2" {
			t.Fatalf("beneath %s: %+v %v", disk, base, err)
		}
		disk = base.Path
	}
	return disk
}

// letsGo fails the test if a machine's process has a removed file open.
func letsGo(t *testing.T, m machine.Machine) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.PID())
	open, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if at, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.Contains(at, "disk-") && strings.HasSuffix(at, " (deleted)") {
			t.Errorf("%s is open still", filepath.Base(at))
		}
	}
}
