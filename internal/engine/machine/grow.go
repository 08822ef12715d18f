package machine

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Shape is what of a machine can grow while it runs.
type Shape struct {
	CPUs     int `json:"cpus"`
	MemoryMB int `json:"memory_mb"`         // MiB
	DiskMB   int `json:"disk_mb,omitempty"` // of the root disk, MiB; 0 without one
}

// GrowMB is the size of the blocks in which memory is added to a running machine, MiB:
// what Linux brings into use as one (memory_block_size_bytes of sysfs, on machines below 64 GiB).
const GrowMB = 128

// MemoryPart is the name of the file in an image's directory with the memory that was
// added as the n-th, from 1; of 0, [MemoryFile].
func MemoryPart(n int) string {
	if n == 0 {
		return MemoryFile
	}
	return fmt.Sprint(MemoryFile, "-", n)
}

// MemoryParts returns the names of the files with memory in an image's directory, in order. The first
// is among them whether it is there or not: no image is without it.
func MemoryParts(dir string) []string {
	parts := []int{0}
	entries, _ := os.ReadDir(dir) // one that is not there has none
	for _, e := range entries {
		digits, _ := strings.CutPrefix(e.Name(), MemoryFile+"-")
		if n, err := strconv.Atoi(digits); err == nil && n > 0 && MemoryPart(n) == e.Name() {
			parts = append(parts, n)
		}
	}
	slices.Sort(parts)
	names := make([]string, len(parts))
	for i, n := range parts {
		names[i] = MemoryPart(n)
	}
	return names
}
