package agent

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// growArgs are what was added to the machine, and how long the guest may take to use it.
type growArgs struct {
	CPUs       int   `json:"cpus,omitempty"`
	MemoryMB   int   `json:"memory_mb,omitempty"`
	DiskSizeMB int   `json:"disk_size_mb,omitempty"`
	LimitMS    int64 `json:"limit_ms"`
}

// Grown is the hardware that a guest uses.
type Grown struct {
	holt.GuestShape
	Fault string `json:"fault,omitempty"` // why the guest does not use all of it
}

// Linux's directories of processors and memory
// (Documentation/ABI/testing/sysfs-devices-system-cpu and -memory).
const (
	cpuDirs    = "/sys/devices/system/cpu/cpu[0-9]*"
	memoryDirs = "/sys/devices/system/memory/memory[0-9]*"
	blockSize  = "/sys/devices/system/memory/block_size_bytes"
	growPoll   = 20 * time.Millisecond
)

// grow uses what was added to the machine; the kernel sees it slightly later.
func (s *Server) grow(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[growArgs](raw)
	if err != nil {
		return nil, err
	}
	if !s.opt.Machine {
		return nil, errNoMachine
	}
	if s.opt.Sandbox { // it uses what its host adds without help
		defer s.runs.groups.share()
		return seen()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(args.LimitMS)*time.Millisecond)
	defer cancel()
	var g Grown
	if args.DiskSizeMB != 0 { // first: the rest may need disk space
		if err := growTo(ctx, args.DiskSizeMB); err == nil {
			g.DiskSizeMB = args.DiskSizeMB
		} else {
			g.Fault = err.Error()
		}
	}
	poll := time.NewTicker(growPoll)
	defer poll.Stop()
	for {
		g.CPUs, g.MemoryMB = onlineCPUs(), onlineMemory()
		if g.CPUs >= args.CPUs && g.MemoryMB >= args.MemoryMB {
			break
		}
		select {
		case <-poll.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	s.runs.groups.share() // raises the limits of runs
	return g, nil
}

// seen returns the hardware as a sandbox sees it.
func seen() (g Grown, err error) {
	var si unix.Sysinfo_t
	var root unix.Statfs_t
	err = errors.Join(unix.Sysinfo(&si), unix.Statfs("/", &root))
	g.CPUs, g.MemoryMB = onlineCPUs(), int(si.Totalram*uint64(si.Unit)/mib)
	g.DiskSizeMB = int(root.Blocks * uint64(root.Bsize) / mib)
	return g, err
}

// onlineCPUs brings all processors online and counts them. The first may have no switch.
func onlineCPUs() (n int) {
	dirs, _ := filepath.Glob(cpuDirs) // the pattern is valid
	for _, dir := range dirs {
		if on, err := turnOn(filepath.Join(dir, "online"), "1"); on || os.IsNotExist(err) {
			n++
		}
	}
	return n
}

// onlineMemory brings all memory online and returns its size, MiB.
func onlineMemory() int {
	b, err := os.ReadFile(blockSize)
	if err != nil {
		return 0
	}
	size, err := strconv.ParseUint(strings.TrimSpace(string(b)), 16, 63)
	if err != nil {
		return 0
	}
	blocks := 0
	dirs, _ := filepath.Glob(memoryDirs)
	for _, dir := range dirs {
		if on, _ := turnOn(filepath.Join(dir, "state"), "online"); on {
			blocks++
		}
	}
	return blocks * int(size/mib)
}

// turnOn writes on to a file of sysfs, unless it has that value, and reports whether it then has.
func turnOn(path, on string) (bool, error) {
	says := func() (bool, error) {
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)) == on, err
	}
	if is, err := says(); is || err != nil {
		return is, err
	}
	if err := os.WriteFile(path, []byte(on), 0); err != nil {
		return false, err
	}
	return says()
}

// vetGrown sanitises a guest's answer.
func vetGrown(g Grown) Grown {
	for _, n := range []*int{&g.CPUs, &g.MemoryMB, &g.DiskSizeMB} {
		*n = min(max(*n, 0), math.MaxInt32)
	}
	g.Fault = plain(g.Fault, maxSentence)
	return g
}

// Grow makes the guest use what was added to its machine, within limit, and
// returns what it uses. Zero fields were not changed.
func (c *Client) Grow(ctx context.Context, to holt.GuestShape, limit time.Duration) (Grown, error) {
	var g Grown
	err := c.call(ctx, opGrow, growArgs{CPUs: to.CPUs, MemoryMB: to.MemoryMB, DiskSizeMB: to.DiskSizeMB, LimitMS: limit.Milliseconds()}, &g)
	return vetGrown(g), err
}
