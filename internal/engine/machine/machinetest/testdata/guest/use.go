package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// use brings all processors and memory online, waits until there are at least
// as many as requested, and returns their numbers: processors, MiB of memory,
// MiB of disk.
func use(cpus, memoryMB, diskMB int64) string {
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		hasCPUs := 1 + online("/sys/devices/system/cpu/cpu[1-9]*/online", "1", "1")
		hasMB := 128 * online("/sys/devices/system/memory/memory*/state", "online", "online")
		hasDisk := int64(0)
		if b, err := os.ReadFile("/sys/block/vda/size"); err == nil {
			sectors, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			hasDisk = sectors >> 11
		}
		if hasCPUs == cpus && hasMB == memoryMB && hasDisk == diskMB || time.Now().After(end) {
			return fmt.Sprint(hasCPUs, " ", hasMB, " ", hasDisk)
		}
	}
}

// online writes on to the files of a pattern, and counts those that contain is.
func online(pattern, on, is string) (n int64) {
	paths, _ := filepath.Glob(pattern)
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		if string(bytes.TrimSpace(b)) != is {
			os.WriteFile(path, []byte(on), 0)
		}
		if b, _ = os.ReadFile(path); string(bytes.TrimSpace(b)) == is {
			n++
		}
	}
	return n
}
