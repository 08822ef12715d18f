package qemu_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/engine/qemu"
)

func open(t *testing.T) *qemu.Engine {
	t.Helper()
	e, err := qemu.Open(t.Context(), qemu.Options{Groups: groups(t), Apart: []string{os.TempDir()}})
	if err != nil {
		t.Fatalf("%v; %s", err, holt.AsError(err).Hint)
	}
	return e
}

// groups opens the control groups of this host.
func groups(t *testing.T) *cgroup.Tree {
	t.Helper()
	all, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// grouped is an engine that checks that each machine has a group, which is removed afterwards.
type grouped struct {
	*qemu.Engine
	t   *testing.T
	all *cgroup.Tree
}

func (g grouped) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	m, err := g.Engine.Start(ctx, spec)
	if err != nil {
		if holt.CodeOf(err) != holt.Conflict { // then it is of the machine that runs there
			g.none(spec.Dir)
		}
		return m, err
	}
	in := g.all.Groups(spec.Dir, m.PID())
	if len(in) == 0 {
		g.t.Error("a machine is in no group")
	}
	g.t.Cleanup(func() { // after all that ends the machine
		g.all.Sweep() // who has ended it may not have known it
		g.none(spec.Dir)
	})
	return m, nil
}

// none checks that a directory's machine has no group.
func (g grouped) none(dir string) {
	g.t.Helper()
	for _, parent := range []string{"holt", "holt-background"} {
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			left, err := filepath.Glob(pattern + parent + "/" + cgroup.Name(dir))
			if err != nil || len(left) > 0 {
				g.t.Errorf("left of a machine's groups: %v %v", left, err)
			}
		}
	}
}

func TestConformance(t *testing.T) {
	machinetest.Run(t, machinetest.Subject{
		Open: func(t *testing.T) machine.Engine { return grouped{open(t), t, groups(t)} },
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
