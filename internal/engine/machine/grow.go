package machine

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Shape is the part of a machine that can grow while it runs.
type Shape struct {
	CPUs     int `json:"cpus"`
	MemoryMB int `json:"memory_mb"`         // MiB
	DiskMB   int `json:"disk_mb,omitempty"` // of the root disk, MiB; 0 without one
}

// GrowMB is the size of the blocks in which memory is added to a running
// machine, MiB: Linux's memory block size (memory_block_size_bytes in sysfs,
// for machines below 64 GiB).
const GrowMB = 128

// MemoryPart returns the name of the file in an image's directory with the n-th
// added memory, from 1; for 0, [MemoryFile].
func MemoryPart(n int) string {
	if n == 0 {
		return MemoryFile
	}
	return fmt.Sprint(MemoryFile, "-", n)
}

// MemoryParts returns the names of the memory files in an image's directory, in
// order. The first is always included, since every image has it.
func MemoryParts(dir string) []string {
	parts := []int{0}
	entries, _ := os.ReadDir(dir) // a missing directory has none
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
