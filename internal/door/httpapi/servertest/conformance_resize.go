package servertest

import (
	"cmp"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// resizes: what is wrong is refused and changes nothing; what is asked for is there or pending, and there after a stop.
func resizes(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	was := newComputer(t, n, "einstein")
	for _, bad := range []holt.ResizeSpec{{}, {CPUs: -1}, {MemoryMB: -1}} {
		_, err := n.Computers.Resize(ctx, "einstein", bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	if _, err := n.Computers.Resize(ctx, "einstein", holt.ResizeSpec{DiskSizeMB: was.DiskSizeMB - 1}, ""); holt.CodeOf(err) != holt.Unsupported {
		WantCode(t, err, holt.InvalidArgument)
	}
	_, err := n.Computers.Resize(ctx, "nobody", holt.ResizeSpec{CPUs: 2}, "")
	WantCode(t, err, holt.NotFound)

	to := func(c holt.Computer) (cpus, memoryMB int) {
		cpus, memoryMB = c.CPUs, c.MemoryMB
		if p := c.Pending; p != nil {
			cpus, memoryMB = cmp.Or(p.CPUs, cpus), cmp.Or(p.MemoryMB, memoryMB)
		}
		return cpus, memoryMB
	}
	more := holt.ResizeSpec{CPUs: was.CPUs + 1, MemoryMB: was.MemoryMB + 256}
	for range 2 {
		got := Must(n.Computers.Resize(ctx, "einstein", more, "more"))(t)
		if cpus, memoryMB := to(got.Computer); cpus != more.CPUs || memoryMB != more.MemoryMB || got.Computer.DiskSizeMB != was.DiskSizeMB || got.Computer.State != holt.ComputerRunning {
			t.Errorf("resized: %+v", got)
		}
	}
	_, err = n.Computers.Resize(ctx, "einstein", holt.ResizeSpec{CPUs: 1}, "more")
	WantCode(t, err, holt.Conflict)
	less := Must(n.Computers.Resize(ctx, "einstein", holt.ResizeSpec{MemoryMB: was.MemoryMB / 2}, ""))(t)
	if p := less.Computer.Pending; p == nil || p.MemoryMB != was.MemoryMB/2 || p.When != "start" || less.Note == "" {
		t.Errorf("less: %+v", less)
	}
	Must(n.Computers.Stop(ctx, "einstein", ""))(t)
	if got := Must(n.Computers.Resize(ctx, "einstein", holt.ResizeSpec{CPUs: more.CPUs, MemoryMB: was.MemoryMB / 2}, ""))(t); got.Guest != nil || got.Computer.Pending != nil || got.Computer.MemoryMB != was.MemoryMB/2 || got.Computer.CPUs != more.CPUs {
		t.Errorf("stopped: %+v", got)
	}
}
