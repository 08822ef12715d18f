package qemu

import (
	"time"

	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
)

const (
	// emulationCPUs is what QEMU's own threads (devices, disks, a migration) and the network process get
	// beside the guest's processors.
	emulationCPUs = 1
	// overheadMB bounds what QEMU and the network process need beside the guest's memory, the kernel's page tables for all
	// of it included, MiB. What the host caches of the disks counts too, and gives way.
	overheadMB = 512
	// translationMB is the most that QEMU sets aside for translated code by itself, MiB; on a small host
	// it is an eighth of the memory (accel/tcg/region.c).
	translationMB = 1024
	// overheadThreads are QEMU's and the network process's own, at most 64 of them at work on disks.
	overheadThreads = 512
	// groupWait is for the kernel to have QEMU out of its group, which is after its end is seen.
	groupWait = time.Second
)

const (
	// usualMB is what QEMU and the network process take beside the guest's memory as a rule, and usualTranslationMB
	// what of that code is that software emulation has translated.
	usualMB            = 128
	usualTranslationMB = 256
)

// overhead is what a machine takes beside its guest's memory, MiB.
func (e *Engine) overhead() int {
	if e.verdict.Accel == machine.AccelTCG {
		return usualMB + usualTranslationMB
	}
	return usualMB
}

// limits are what the machine of a shape may take of the host.
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

// bound puts QEMU into its group, with what a shape may take. A machine that cannot be bounded runs on.
func (g *guest) bound(s machine.Shape) {
	if err := g.engine.groups.Put(g.Dir.Path, g.Handle.PID, g.engine.limits(s, g.spec.Background)); err != nil {
		g.engine.log.Warn("a machine is not bounded as it should be", "machine", g.spec.ID, "err", err)
	}
}

// bounded lets the machine take what it is to grow to, and once it has what it has then. taking is held.
func (g *guest) bounded(to machine.Shape, grow func() error) error {
	has := g.hardware.shape()
	g.bound(machine.Shape{CPUs: max(has.CPUs, to.CPUs), MemoryMB: max(has.MemoryMB, to.MemoryMB)})
	err := grow()
	if !g.unsure { // or it may have more than is known
		g.bound(g.hardware.shape())
	}
	return err
}

// unbound removes the group of a machine that has ended. Its network lives a little longer; it is not
// waited for, since who ends that removes the group.
func (g *guest) unbound() {
	wait := groupWait
	if g.spec.Network {
		wait = 0
	}
	g.engine.groups.Remove(g.Dir.Path, wait)
}
