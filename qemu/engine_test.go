package qemu_test

import (
	"os"
	"path/filepath"
	"testing"

	"holt"
	"holt/machine"
	"holt/machine/machinetest"
	"holt/qemu"
)

func open(t *testing.T) *qemu.Engine {
	t.Helper()
	e, err := qemu.Open(t.Context(), qemu.Options{})
	if err != nil {
		t.Fatalf("%v; %s", err, holt.AsError(err).Hint)
	}
	return e
}

func TestConformance(t *testing.T) {
	machinetest.Run(t, machinetest.Subject{
		Open: func(t *testing.T) machine.Engine { return open(t) },
		Spec: func(t *testing.T) machine.Spec {
			kernel, initrd := machinetest.Boot(t)
			return machine.Spec{Kernel: kernel, Initrd: initrd, CPUs: 1, MemoryMB: 128, MaxCPUs: 3, MaxMemoryMB: 1024, Network: true}
		},
		Broken: func(t *testing.T, spec *machine.Spec) machine.Engine {
			spec.Kernel = filepath.Join(t.TempDir(), "kernel")
			if err := os.WriteFile(spec.Kernel, []byte("not a kernel"), 0o600); err != nil {
				t.Fatal(err)
			}
			return open(t)
		},
	})
}
