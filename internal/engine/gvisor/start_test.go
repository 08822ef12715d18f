package gvisor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// TestRestored: an image is restored only by the engine and on the processor that made it.
func TestRestored(t *testing.T) {
	here, err := json.Marshal(HardwareHere())
	if err != nil {
		t.Fatal(err)
	}
	was := machine.Spec{CPUs: 2, MemoryMB: 256, Disk: "/disks/frozen", Network: true}
	image := func(engine, hardware string) string {
		dir := t.TempDir()
		im := machine.Image{Engine: engine, Spec: was, TakenAt: time.Now(), Hardware: json.RawMessage(hardware)}
		if err := im.Write(dir, false); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	other := HardwareHere()
	other.CPU = "0123456789abcdef"
	processor, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{ID: "x", Dir: "/machines/x", Disk: "/disks/x", Unserved: true, Restore: image(EngineName, string(here))}
	got, _, err := restored(spec)
	want := spec
	want.CPUs, want.MemoryMB, want.Network = was.CPUs, was.MemoryMB, was.Network
	if err != nil || got.ID != want.ID || got.Disk != want.Disk || got.CPUs != want.CPUs || got.MemoryMB != want.MemoryMB || !got.Network || !got.Unserved {
		t.Errorf("restored %+v (%v), want %+v", got, err, want)
	}
	corrupt := t.TempDir()
	if err := os.WriteFile(filepath.Join(corrupt, machine.RecordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		restore string
		change  func(*machine.Spec)
		code    holt.Code
	}{
		"another processor": {image(EngineName, string(processor)), nil, holt.Unsupported},
		"another engine":    {image("qemu-kvm", string(here)), nil, holt.Unsupported},
		"its hardware":      {image("qemu-kvm", `{"cpu":{"model":"max"}}`), nil, holt.Unsupported},
		"no hardware":       {image(EngineName, `"none"`), nil, holt.Corrupt},
		"corrupt":           {corrupt, nil, holt.Corrupt},
		"none":              {t.TempDir(), nil, holt.NotFound},
		"relative":          {"image", nil, holt.InvalidArgument},
		"other memory":      {spec.Restore, func(s *machine.Spec) { s.MemoryMB = 512 }, holt.InvalidArgument},
		"no disk":           {spec.Restore, func(s *machine.Spec) { s.Disk = "" }, holt.InvalidArgument},
	} {
		s := spec
		s.Restore = c.restore
		if c.change != nil {
			c.change(&s)
		}
		if _, _, err := restored(s); holt.CodeOf(err) != c.code || c.code == holt.Unsupported && holt.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestVersion: it is the version that this program is built with.
func TestVersion(t *testing.T) {
	b, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "gvisor.dev/gvisor "+Version+"\n") {
		t.Errorf("go.mod requires another version of gVisor than %s", Version)
	}
}

// TestCheck: in a chroot, where gVisor cannot start, Check returns the reason; without mkfs.ext4, the package to install.
func TestCheck(t *testing.T) {
	const inside = "HOLT_TEST_CHROOT"
	if os.Getenv(inside) != "" {
		if err := Check("/bin/true"); holt.CodeOf(err) != holt.Unsupported || !strings.Contains(err.Error(), "user namespace") {
			t.Fatal(err)
		}
		return
	}
	if err := Check(machinetest.Holt(t)); err != nil {
		t.Fatal("outside: ", err)
	}
	t.Run("mkfs.ext4", func(t *testing.T) {
		t.Setenv("PATH", "")
		want := map[string]any{"install": []string{"e2fsprogs"}}
		if err := Check(machinetest.Holt(t)); !reflect.DeepEqual(holt.AsError(err).Detail, want) {
			t.Errorf("without mkfs.ext4: %v", err)
		}
	})
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --rbind / "$0" && exec chroot "$0" /proc/self/fd/3 -test.run '^TestCheck$'`, t.TempDir())
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd.ExtraFiles, cmd.Env = []*os.File{self}, append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestStatic: a program that needs a dynamic loader cannot run sandboxes, and is refused.
func TestStatic(t *testing.T) {
	if err := static("/bin/true"); holt.CodeOf(err) != holt.Unsupported {
		t.Error(err)
	}
	if err := static(machinetest.Holt(t)); err != nil {
		t.Error(err)
	}
}
