package qemu

import (
	"slices"
	"strings"
	"testing"

	"holt/machine"
)

// The guest defends itself against speculation where there is some: on a real processor.
func TestMitigations(t *testing.T) {
	for accel, off := range map[machine.Acceleration]bool{machine.AccelTCG: true, machine.AccelKVM: false} {
		args := strings.Fields(kernelArgs(machine.Spec{Args: []string{"test.word"}}, accel))
		if slices.Contains(args, "mitigations=off") != off || args[len(args)-1] != "test.word" {
			t.Errorf("%s: %q", accel, args)
		}
	}
}
