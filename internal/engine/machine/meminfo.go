package machine

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// HostMemory returns the host's memory, and what of it programs can still have without swap, bytes;
// [math.MaxInt64] of both if the host does not say.
func HostMemory() (total, available int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64, math.MaxInt64
	}
	return ParseMeminfo(string(b))
}

// ParseMeminfo returns of the text of proc_meminfo(5) the host's memory, and what of it programs can
// still have without swap, bytes; 0 for what it does not say.
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
