package computer

import "testing"

// Only a shape that is larger by whole blocks, and by no more processors than its machine takes, can be grown to.
func TestOutgrows(t *testing.T) {
	for _, c := range []struct {
		cpus, memoryMB int
		want           bool
	}{
		{defaultCPUs, defaultMemoryMB, false},
		{2, defaultMemoryMB, true},
		{defaultCPUs, defaultMemoryMB + 128, true},
		{8, 4096, true},
		{defaultCPUs, defaultMemoryMB + 100, false},
		{2, 512, false},
		{maxCPUs() + 1, defaultMemoryMB, false},
	} {
		if got := outgrows(c.cpus, c.memoryMB); got != c.want {
			t.Errorf("%d processors, %d MiB: %v", c.cpus, c.memoryMB, got)
		}
	}
}
