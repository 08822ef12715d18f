package machinetest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"holt"
	"holt/internal/engine/machine"
)

// testNoGrowth: an engine whose machines cannot grow returns an error and changes nothing.
func testNoGrowth(t *testing.T, l *lab) {
	m := l.shared(t)
	if err := m.Grow(t.Context(), machine.Shape{CPUs: 2}); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("grow: %v", err)
	}
	if _, err := m.Shape(t.Context()); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("shape: %v", err)
	}
	l.alive(t, m)
}

// testGrow: processors, memory and disk are added to a running machine. It and
// its forks use them, and the forks grow on their own; in a soak also forks of those, one of them
// adopted. The tests after this one use the machine that has grown.
func testGrow(t *testing.T, w *world) {
	was := w.counts(t, w.m, 0)
	first := machine.Shape{CPUs: w.spec.CPUs + 1, MemoryMB: w.spec.MemoryMB + 2*machine.GrowMB, DiskMB: w.diskMB + 16}
	w.grow(t, w.m, first, first)
	w.diskMB = first.DiskMB
	w.grow(t, w.m, first, first) // repeating does no harm
	w.grow(t, w.m, machine.Shape{CPUs: 1, MemoryMB: w.spec.MemoryMB, DiskMB: 1}, first)
	w.counts(t, w.m, was)
	// More than the initial memory, and a block of the disk beyond its old end.
	w.ask(t, w.m, fmt.Sprint("fill ", w.spec.MemoryMB+8, " 7"))
	sum := w.ask(t, w.m, "sum")
	last := first.DiskMB<<20/4096 - 1
	w.says(t, w.m, fmt.Sprint("write ", last, " beyond"), "beyond")

	at := w.snapshot(t, w.m, nil)
	if parts := machine.MemoryParts(at.dir); len(parts) != 2 {
		t.Errorf("the image has its memory in %v", parts)
	}
	forks := w.forks(t, at, 2)
	// Partial blocks and sizes beyond the maximum are not added.
	second := machine.Shape{CPUs: w.spec.MaxCPUs, MemoryMB: first.MemoryMB + machine.GrowMB, DiskMB: first.DiskMB}
	w.grow(t, forks[0], machine.Shape{CPUs: w.spec.MaxCPUs + 5, MemoryMB: second.MemoryMB + machine.GrowMB - 1}, second)
	w.has(t, forks[1], first)
	for _, m := range append(forks, w.m) {
		w.says(t, m, "sum", sum)
		w.says(t, m, fmt.Sprint("read ", last), "beyond")
	}
	if soak() {
		w.growAgain(t, forks[0], second, sum)
	}
	for _, m := range forks {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	}
	w.has(t, w.m, first)
	w.counts(t, w.m, was)
}

// growAgain forks a machine that has grown, has another process adopt the fork, and forks that.
func (w *world) growAgain(t *testing.T, m machine.Machine, shape machine.Shape, sum string) {
	t.Helper()
	again := w.snapshot(t, m, nil)
	grandchild := w.forks(t, again, 1)[0]
	w.has(t, grandchild, shape)
	w.says(t, grandchild, "sum", sum)
	dir := filepath.Dir(grandchild.Console())
	grandchild.Release()
	grandchild = w.adopt(t, w.Open(t), dir)
	w.has(t, grandchild, shape)
	youngest := w.forks(t, w.snapshot(t, grandchild, nil), 1)[0]
	w.says(t, youngest, "sum", sum)
	for _, m := range []machine.Machine{grandchild, youngest} {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// grow grows a machine and fails the test unless it then has the shape want.
func (w *world) grow(t *testing.T, m machine.Machine, to, want machine.Shape) {
	t.Helper()
	if err := m.Grow(t.Context(), to); err != nil {
		t.Fatalf("grow to %+v: %v", to, err)
	}
	w.has(t, m, want)
}

// has fails the test unless a machine has a shape and its guest uses all of it.
func (w *world) has(t *testing.T, m machine.Machine, want machine.Shape) {
	t.Helper()
	got, err := m.Shape(t.Context())
	if err != nil || got != want {
		t.Errorf("the machine has %+v, want %+v (%v)", got, want, err)
	}
	w.says(t, m, fmt.Sprint("use ", want.CPUs, " ", want.MemoryMB, " ", want.DiskMB), fmt.Sprint(want.CPUs, " ", want.MemoryMB, " ", want.DiskMB))
}

// room returns the size of the file system with a sandbox's disk, MiB.
func (w *world) room(t *testing.T, m machine.Machine) int {
	t.Helper()
	n, err := strconv.Atoi(w.ask(t, m, "room"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testGrowDisk: a disk that no machine has open grows, never shrinks, and keeps its content.
func testGrowDisk(t *testing.T, w *world) {
	spec := w.fork(t, w.snapshot(t, w.m, nil))
	for _, sizeMB := range []int{w.diskMB + 32, w.diskMB + 8, w.diskMB + 32} {
		if err := w.engine.GrowDisk(t.Context(), spec.Disk, sizeMB); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.engine.GrowDisk(t.Context(), w.path("absent"), 64); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a disk that is not there: %v", err)
	}
	fork := w.launch(t, w.engine, spec)
	w.says(t, fork, "read 1", w.ask(t, w.m, "read 1"))
	if w.engine.Capabilities().Growing {
		shape, err := fork.Shape(t.Context())
		if err != nil || shape.DiskMB != w.diskMB+32 {
			t.Errorf("the fork has %+v (%v)", shape, err)
		}
		w.has(t, fork, shape) // the guest was notified
	} else if was, is := w.room(t, w.m), w.room(t, fork); is < was+32-4 || is > was+32 { // less what the file system needs
		t.Errorf("the fork's file system has %d MiB, that of the original %d", is, was)
	}
	if err := fork.Kill(); err != nil {
		t.Error(err)
	}
}
