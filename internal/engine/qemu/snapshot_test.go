package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// world is a machine with a disk, for snapshots.
type world struct {
	*guest
	dir   string
	count int
}

// newWorld boots a machine with memoryMB MiB of memory. It ends with the test.
func newWorld(t *testing.T, e *Engine, memoryMB int) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	base := w.path("base")
	if err := os.WriteFile(base, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(base, 64<<20); err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{ID: "x", Dir: w.path("machine"), Disk: w.path("disk"), CPUs: 1, MemoryMB: memoryMB, MaxCPUs: 2, MaxMemoryMB: 512, Network: true}
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	if err := e.CreateDisk(t.Context(), spec.Disk, machine.Base{Path: base}, 64); err != nil {
		t.Fatal(err)
	}
	m, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	w.guest = m.(*guest)
	w.ask(t, m, "count") // it is up
	return w
}

// path returns an unused path.
func (w *world) path(what string) string {
	w.count++
	return filepath.Join(w.dir, fmt.Sprint(what, "-", w.count))
}

func (w *world) ask(t *testing.T, m machine.Machine, request string) string {
	t.Helper()
	said, err := machinetest.Ask(t.Context(), m, request)
	if err != nil {
		t.Fatalf("ask %q: %v", request, err)
	}
	return said
}

// TestImageIsTheMemory compares each page of an image with the memory of the
// stopped QEMU, also for a machine that has grown. It takes 2 images;
// HOLT_SOAK=1: 20.
func TestImageIsTheMemory(t *testing.T) {
	const lowest, highest = 0xa0000, 0x100000 // between them is no memory
	n := 2                                    // one before and one after it has grown
	if os.Getenv("HOLT_SOAK") != "" {
		n = 20
	}
	w := newWorld(t, emulated(t, monitorWait), 128)
	w.ask(t, w, "dirty 20 16")
	w.ask(t, w, "churn")
	for i := range n {
		if i == (n+1)/3 { // what it has then is twice as much, and half of it elsewhere
			if err := w.Grow(t.Context(), machine.Shape{CPUs: 2, MemoryMB: 256}); err != nil {
				t.Fatal(err)
			}
			w.ask(t, w, "use 2 256 64")
			w.ask(t, w, "fill 100 3")
			w.ask(t, w, "dirty 20 64")
		}
		var dumps []string
		spec := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
		spec.Held = func(context.Context) error {
			for j, sizeMB := range w.hardware.parts() {
				dumps = append(dumps, w.path("dump"))
				args := map[string]any{"val": 0, "size": sizeMB * mib, "filename": dumps[j]}
				if j > 0 {
					args["val"] = w.hardware.Memory[j-1].Addr
				}
				if err := errors.Join(os.WriteFile(dumps[j], nil, 0o600), w.show(dumps[j])); err != nil {
					return err
				}
				if err := w.monitor.do(t.Context(), "pmemsave", args, nil); err != nil {
					return err
				}
			}
			return nil
		}
		report, err := w.Snapshot(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		for j, dump := range dumps {
			want, err := os.ReadFile(dump)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(spec.Dir, machine.MemoryPart(j)))
			if err != nil || len(got) != len(want) {
				t.Fatalf("memory of %d bytes: %v", len(got), err)
			}
			other, zero := 0, 0
			for p := 0; p < len(want); p += pageSize {
				if !bytes.Equal(got[p:p+pageSize], want[p:p+pageSize]) && (j > 0 || p < lowest || p >= highest) {
					other++
				}
				if bytes.Equal(want[p:p+pageSize], zeros[:]) {
					zero++
				}
			}
			if other > 0 || zero == len(want)/pageSize {
				t.Errorf("part %d: %d pages are not what they were, %d are zeros: %+v", j, other, zero, report)
			}
			os.Remove(dump)
		}
		if i >= (n+1)/3 && len(dumps) != 2 {
			t.Errorf("%d parts of memory", len(dumps))
		}
		os.RemoveAll(spec.Dir)
	}
	t.Logf("counts: %d images compared, page by page", n)
}
