package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Consumption is what a process has used since it started. It only grows.
type Consumption struct {
	Process
	CPU time.Duration // processor time of all threads and of children that were waited for
	Age time.Duration // by CLOCK_BOOTTIME: not settable, includes suspend
}

// userHz is the unit of times in /proc, independent of the kernel's clock: 100
// on every supported architecture.
const userHz = 100

// Consumed returns the consumption of the process with this pid.
func Consumed(pid int) (Consumption, error) {
	boot, err := BootID()
	if err != nil {
		return Consumption{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Consumption{}, fmt.Errorf("read process consumption: %w", err)
	}
	start, err := parseStart(stat)
	if err != nil {
		return Consumption{}, err
	}
	c := Consumption{Process: Process{PID: pid, Start: start, BootID: boot}}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // parseStart has checked the number of fields
	for _, field := range fields[14-3 : 18-3] {                     // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Consumption{}, fmt.Errorf("read process consumption: %w", err)
		}
		c.CPU += time.Duration(n) * (time.Second / userHz)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return Consumption{}, fmt.Errorf("read the time since boot: %w", err)
	}
	c.Age = max(0, time.Duration(now.Nano())-time.Duration(start)*(time.Second/userHz))
	return c, nil
}
