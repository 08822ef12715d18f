package qemu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
)

// A guest disables its own defences only in software emulation, where they are expensive.
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

// An image is restored only with the same hardware; the error lists the differences.
func TestRestoreElsewhere(t *testing.T) {
	e := emulated(t, monitorWait)
	spec := machine.Spec{ID: "x", Dir: "/m", Kernel: "/k", Initrd: "/i", CPUs: 1, MemoryMB: 64}
	for what, change := range map[string]func(*Hardware){
		"qemu version":  func(h *Hardware) { h.Version = "9.9" },
		"machine type":  func(h *Hardware) { h.MachineType = "pc-q35-9.9" },
		"cpu model":     func(h *Hardware) { h.CPUModel = "486" },
		"accel":         func(h *Hardware) { h.Accel = machine.AccelKVM },
		"devices":       func(h *Hardware) { h.Devices = append(h.Devices, "virtio-balloon") },
		"host cpu":      func(h *Hardware) { h.HostCPU = "Alpha" },
		"":              func(h *Hardware) {},
		"memory of":     nil, // the file
		"no such image": nil,
	} {
		hw := e.verdict.hardware(spec)
		if change != nil {
			change(&hw)
		}
		b, err := json.Marshal(hw)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if what != "no such image" {
			if err := (machine.Image{Engine: e.Name(), Spec: spec, Hardware: b}).Write(dir, false); err != nil {
				t.Fatal(err)
			}
		}
		memory := filepath.Join(dir, machine.MemoryFile)
		if err := os.WriteFile(memory, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if what != "memory of" {
			if err := os.Truncate(memory, 64*mib); err != nil {
				t.Fatal(err)
			}
		}
		got, _, err := e.restored(machine.Spec{ID: "y", Dir: "/y", Restore: dir})
		switch {
		case what == "":
			if err != nil || got.Kernel != "/k" || got.MemoryMB != 64 || got.ID != "y" {
				t.Errorf("the same: %+v, %v", got, err)
			}
		case what == "no such image":
			if holt.CodeOf(err) != holt.NotFound {
				t.Error(err)
			}
		case err == nil || !strings.Contains(err.Error(), what) || change != nil && holt.CodeOf(err) != holt.Unsupported:
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFormerNetworkDevice: an older image, with the default MTU, keeps its network device.
func TestFormerNetworkDevice(t *testing.T) {
	v := emulated(t, monitorWait).verdict
	now := v.hardware(machine.Spec{CPUs: 1, MemoryMB: 64, Disk: "/d", Network: true})
	was := now
	was.Devices = append(slices.Clone(now.Devices[:len(now.Devices)-1]), plainNetwork)
	if what := was.differs(now.asIn(was)); what != "" || was.differs(now) == "" || now.Devices[len(now.Devices)-1] == plainNetwork {
		t.Errorf("%q, %q", what, now.Devices)
	}
	if other := v.hardware(machine.Spec{CPUs: 1, MemoryMB: 64, Disk: "/d"}); other.differs(other.asIn(was)) != "" {
		t.Error("a machine without a network has got one")
	}
}
