package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// A machine, and each image of it, has its own initramfs, which survives the
// removal of the original and of the image the machine was restored from.
func TestInitrdIsCopied(t *testing.T) {
	e, dir := emulated(t, monitorWait), t.TempDir()
	spec := machine.Spec{ID: "x", Dir: filepath.Join(dir, "machine"), CPUs: 1, MemoryMB: 128}
	kernel, initrd := machinetest.Boot(t)
	spec.Kernel, spec.Initrd = kernel, filepath.Join(dir, "made")
	if err := linkOrCopy(initrd, spec.Initrd); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"first", "second", "last"} {
		m, err := e.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("start before %s: %v", image, err)
		}
		t.Cleanup(func() { m.Kill() })
		if _, err := machinetest.Ask(t.Context(), m, "count"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(dir, "made"), spec.Restore} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		to := filepath.Join(dir, image)
		if image == "last" { // one that an earlier program started, whose file is gone by now
			if err := os.Remove(filepath.Join(spec.Dir, machine.InitrdFile)); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: to, End: true}); holt.CodeOf(err) != holt.Conflict {
				t.Errorf("a snapshot that nothing could go on from: %v", err)
			}
			if _, err := machinetest.Ask(t.Context(), m, "count"); err != nil {
				t.Error(err)
			}
			if isThere(to) {
				t.Error("something of it is left")
			}
			return
		}
		if _, err := m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: to, End: true, Durable: true}); err != nil {
			t.Fatal(err)
		}
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		spec = machine.Spec{ID: "x", Dir: spec.Dir, Restore: to}
		im, err := machine.ReadImage(to)
		if err != nil || im.Spec.Initrd != filepath.Join(dir, "made") {
			t.Errorf("the record says %q, %v", im.Spec.Initrd, err)
		}
	}
}

// A file on another disk is copied, and an existing file is replaced.
func TestLinkOrCopy(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	if other, err := os.MkdirTemp("/dev/shm", "holt-test"); err == nil {
		defer os.RemoveAll(other)
		from = filepath.Join(other, "from")
	}
	for _, content := range []string{"one", "another"} {
		os.Remove(from)
		if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := linkOrCopy(from, to); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(to); err != nil || string(b) != content {
				t.Errorf("%q, %v", b, err)
			}
		}
		if err := linkOrCopy(from, from); err != nil || !isThere(from) {
			t.Errorf("onto itself: %v", err)
		}
	}
}
