package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holt/machine"
	"holt/machine/machinetest"
)

// world is a machine with a disk, of which snapshots are taken.
type world struct {
	*guest
	dir   string
	count int
}

// newWorld boots one with memoryMB MiB of memory. It ends with the test.
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
	spec := machine.Spec{ID: "x", Dir: w.path("machine"), Disk: w.path("disk"), CPUs: 1, MemoryMB: memoryMB}
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

// path returns one where nothing is.
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

// An image holds the memory as it is when the processors stand: each page is
// compared with what QEMU says that it holds then.
func TestImageIsTheMemory(t *testing.T) {
	const lowest, highest = 0xa0000, 0x100000 // between them is no memory
	n := 3
	if os.Getenv("HOLT_SOAK") != "" {
		n = 100
	}
	w := newWorld(t, emulated(t, monitorWait), 128)
	w.ask(t, w, "dirty 20 16")
	w.ask(t, w, "churn")
	for range n {
		dump := w.path("dump")
		spec := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
		spec.Held = func(context.Context) error {
			args := map[string]any{"val": 0, "size": w.spec.MemoryMB * mib, "filename": dump}
			return w.monitor.do(t.Context(), "pmemsave", args, nil)
		}
		report, err := w.Snapshot(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(dump)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(spec.Dir, machine.MemoryFile))
		if err != nil || len(got) != len(want) {
			t.Fatalf("memory of %d bytes: %v", len(got), err)
		}
		other := 0
		for p := 0; p < len(want); p += pageSize {
			if !bytes.Equal(got[p:p+pageSize], want[p:p+pageSize]) && (p < lowest || p >= highest) {
				other++
			}
		}
		if other > 0 {
			t.Errorf("%d pages are not what they were: %+v", other, report)
		}
		os.Remove(dump)
		os.RemoveAll(spec.Dir)
	}
	t.Logf("counts: %d images compared, page by page", n)
}
