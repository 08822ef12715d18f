package agent

import (
	"os"
	"strconv"
	"strings"
)

// memoryUsed returns MemTotal minus MemAvailable of proc_meminfo(5), bytes.
func memoryUsed(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	kib := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			kib[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return max(0, kib["MemTotal:"]-kib["MemAvailable:"]) << 10
}
