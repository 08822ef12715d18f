package machine

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// HostMemory returns the host's total memory and the memory available to
// programs without swapping, bytes; [math.MaxInt64] for both if unknown.
func HostMemory() (total, available int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64, math.MaxInt64
	}
	return ParseMeminfo(string(b))
}

// ParseMeminfo returns total and available memory from the text of
// proc_meminfo(5), bytes; 0 if missing.
func ParseMeminfo(text string) (total, available int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available
}
