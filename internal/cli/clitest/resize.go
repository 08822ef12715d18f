package clitest

import (
	"cmp"
	"context"

	"holt"
)

// Resize has a running computer get more at once and less when it starts next.
func (n computers) Resize(_ context.Context, ref string, spec holt.ResizeSpec, key string) (holt.ResizedComputer, error) {
	return once(n.m, key, []any{"resize", ref, spec}, func() (out holt.ResizedComputer, err error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return out, err
		}
		if spec == (holt.ResizeSpec{}) || spec.CPUs < 0 || spec.MemoryMB < 0 || spec.DiskSizeMB != 0 && spec.DiskSizeMB < c.DiskSizeMB {
			return out, holt.Errorf(holt.InvalidArgument, "a root disk cannot be made smaller, and a resize needs a size").WithHint("give more")
		}
		c.DiskSizeMB = cmp.Or(spec.DiskSizeMB, c.DiskSizeMB)
		next := holt.Pending{When: "start"}
		for _, of := range []struct{ has, asked, later *int }{{&c.CPUs, &spec.CPUs, &next.CPUs}, {&c.MemoryMB, &spec.MemoryMB, &next.MemoryMB}} {
			if *of.asked >= *of.has || c.State == holt.ComputerStopped {
				*of.has = cmp.Or(*of.asked, *of.has)
			} else {
				*of.later = *of.asked
			}
		}
		if c.Pending = nil; next.CPUs != 0 || next.MemoryMB != 0 {
			c.Pending, out.Note = &next, "less at the next start"
		}
		if c.State == holt.ComputerRunning {
			out.Guest = &holt.GuestShape{CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskSizeMB: c.DiskSizeMB}
		}
		out.Computer = *c
		return out, nil
	})
}
