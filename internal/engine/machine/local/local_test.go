package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/engine/machine/machinetest"
)

func TestConformance(t *testing.T) {
	before := mounts(t)
	guest := machinetest.Guest(t)
	machinetest.Run(t, machinetest.Subject{
		Open: func(t *testing.T) machine.Engine { return local.New(local.Options{Guest: guest}) },
		Spec: func(t *testing.T) machine.Spec { return machine.Spec{CPUs: 1, MemoryMB: 128} },
		Broken: func(t *testing.T, spec *machine.Spec) machine.Engine {
			return local.New(local.Options{Guest: "/bin/false"})
		},
	})
	if after := mounts(t); after != before {
		t.Errorf("mounts on /home, /proc and the like\nbefore:\n%s\nafter:\n%s", before, after)
	}
}

// mounts returns the lines of this namespace's mount table that a machine could affect.
func mounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == "/proc" || strings.HasPrefix(f[1], "/home") {
			ours = append(ours, line)
		}
	}
	return strings.Join(ours, "")
}

func TestCreateDisk(t *testing.T) {
	e := local.New(local.Options{})
	path := filepath.Join(t.TempDir(), "disk")
	if err := e.CreateDisk(t.Context(), path, machine.Base{}, 1); err != nil {
		t.Fatal(err)
	}
	if err := e.CreateDisk(t.Context(), path, machine.Base{}, 1); holt.CodeOf(err) != holt.AlreadyExists {
		t.Errorf("a second disk at the same path: %v", err)
	}
	if err := e.CreateDisk(t.Context(), path+"2", machine.Base{}, 0); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a disk of nothing: %v", err)
	}
}

func TestNoGuest(t *testing.T) {
	e := local.New(local.Options{Guest: filepath.Join(t.TempDir(), "absent")})
	spec := machine.Spec{Dir: filepath.Join(t.TempDir(), "m"), CPUs: 1, MemoryMB: 64}
	if _, err := e.Start(t.Context(), spec); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("start without the program: %v", err)
	}
}
