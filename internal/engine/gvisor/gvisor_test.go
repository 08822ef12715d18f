package gvisor_test

import (
	"testing"

	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

func open(t *testing.T, guest string) *gvisor.Engine {
	t.Helper()
	e, err := gvisor.Open(gvisor.Options{Program: machinetest.Holt(t), Guest: guest})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformance(t *testing.T) {
	machinetest.Run(t, machinetest.Subject{
		Open: func(t *testing.T) machine.Engine { return open(t, machinetest.GuestDir(t)) },
		Spec: func(t *testing.T) machine.Spec {
			return machine.Spec{CPUs: 1, MemoryMB: 128, Network: true, Unserved: true}
		},
		Root:  machinetest.Base(t, machinetest.Guest(t)).Root,
		Ports: []string{machine.PortControl}, // the keeper has the other one
		Broken: func(t *testing.T, spec *machine.Spec) machine.Engine {
			return open(t, "/nonexistent") // it cannot be mounted
		},
	})
}
