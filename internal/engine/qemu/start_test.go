package qemu

import (
	"errors"
	"log/slog"
	"testing"

	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// The daemon died after it recorded a machine and before its processors ran:
// there is nothing to keep.
func TestAdoptBeforeLaunch(t *testing.T) {
	v := installed(t)
	v.Accel, v.MachineType = machine.AccelTCG, preferredMachine
	e := &Engine{verdict: v, log: slog.Default(), wait: monitorWait}
	spec := machine.Spec{ID: "x", Dir: t.TempDir(), CPUs: 1, MemoryMB: 64}
	spec.Kernel, spec.Initrd = machinetest.Boot(t)
	dir, err := machine.OpenDir(spec.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(e, dir, spec, v.hardware(spec))
	t.Cleanup(g.undo)
	_, err = g.launch(lock, v.hardware(spec).arguments(spec))
	lock.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteRecord(machine.Record{Engine: e.Name(), Process: g.Handle.Process, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if m, err := e.Adopt(t.Context(), spec.Dir); !errors.Is(err, machine.ErrGone) {
		t.Errorf("adopted %v, %v", m, err)
	}
	<-g.Handle.Done()
}
