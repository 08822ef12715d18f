package qemu

import (
	"time"

	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
)

const (
	// emulationCPUs is for QEMU's own threads (devices, disks, migration) and the
	// network process, in addition to the guest's processors.
	emulationCPUs = 1
	// overheadMB is the limit for memory of QEMU and the network process in
	// addition to the guest's memory, with the kernel's page tables, MiB. Page
	// cache of the disks counts too and is reclaimed.
	overheadMB = 512
	// translationMB is the maximum size of QEMU's default translation buffer, MiB;
	// on a small host it is an eighth of the memory (accel/tcg/region.c).
	translationMB = 1024
	// overheadThreads is for QEMU and the network process; at most 64 of them do disk I/O.
	overheadThreads = 512
	// groupWait is how long the kernel may take to remove QEMU from its group after its end.
	groupWait = time.Second
)

const (
	// usualMB is the typical memory of QEMU and the network process in addition to
	// the guest's, and usualTranslationMB that of translated code in software
	// emulation.
	usualMB            = 128
	usualTranslationMB = 256
)

// overhead returns the typical memory of a machine in addition to its guest's, MiB.
func (e *Engine) overhead() int {
	if e.verdict.Accel == machine.AccelTCG {
		return usualMB + usualTranslationMB
	}
	return usualMB
}

// limits returns the limits for a machine of a shape.
func (e *Engine) limits(s machine.Shape, background bool) cgroup.Limits {
	mb := s.MemoryMB + overheadMB
	if e.verdict.Accel == machine.AccelTCG {
		mb += translationMB
	}
	return cgroup.Limits{
		CPUs: float64(s.CPUs + emulationCPUs), MemoryBytes: int64(mb) * mib,
		Processes: s.CPUs + overheadThreads, Background: background,
	}
}

// bound puts QEMU into its group with the limits for a shape. If that fails the
// machine keeps running.
func (g *guest) bound(s machine.Shape) {
	if err := g.engine.groups.Put(g.Dir.Path, g.Handle.PID, g.engine.limits(s, g.spec.Background)); err != nil {
		g.engine.log.Warn("cannot set all resource limits of a machine", "machine", g.spec.ID, "err", err)
	}
}

// bounded raises the limits to those of to, calls grow, and then sets the
// limits for the resulting shape. taking is held.
func (g *guest) bounded(to machine.Shape, grow func() error) error {
	has := g.hardware.shape()
	g.bound(machine.Shape{CPUs: max(has.CPUs, to.CPUs), MemoryMB: max(has.MemoryMB, to.MemoryMB)})
	err := grow()
	if !g.unsure { // otherwise it may have more than known
		g.bound(g.hardware.shape())
	}
	return err
}

// removeGroup removes the group of a machine that has ended. Its network process
// may live longer; the code that ends that removes the group.
func (g *guest) removeGroup() {
	wait := groupWait
	if g.spec.Network {
		wait = 0
	}
	g.engine.groups.Remove(g.Dir.Path, wait)
}
