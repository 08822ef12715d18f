package qemu

import (
	"slices"
	"strings"
	"testing"

	"holt/machine"
)

// A guest gives up defences of its own only where they cost much and no real
// processor runs it.
func TestDefences(t *testing.T) {
	for accel, off := range map[machine.Acceleration]bool{machine.AccelTCG: true, machine.AccelKVM: false} {
		args := strings.Fields(kernelArgs(machine.Spec{Args: []string{"test.word"}}, accel))
		for _, defence := range []string{"mitigations=off", "norandmaps", "init_on_alloc=0"} {
			if slices.Contains(args, defence) != off || args[len(args)-1] != "test.word" {
				t.Errorf("%s: %q", accel, args)
			}
		}
	}
	if model := cpuModel(machine.AccelKVM); model != "host" {
		t.Errorf("under KVM the processor is %q", model)
	}
}
