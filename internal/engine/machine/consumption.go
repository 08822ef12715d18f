package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Consumption is what a process has used since it began. It only grows.
type Consumption struct {
	Process
	CPU time.Duration // of processors, all threads together, with that of children it has waited for
	Age time.Duration // by a clock that nobody sets, and that goes on while the host sleeps
}

// userHz is the unit of times in /proc, whatever the kernel's own clock is: 100 on every architecture of ours.
const userHz = 100

// Consumed returns what the process that has pid now has used.
func Consumed(pid int) (Consumption, error) {
	boot, err := BootID()
	if err != nil {
		return Consumption{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Consumption{}, fmt.Errorf("read what a process has used: %w", err)
	}
	start, err := parseStart(stat)
	if err != nil {
		return Consumption{}, err
	}
	c := Consumption{Process: Process{PID: pid, Start: start, BootID: boot}}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // parseStart has seen that there are enough
	for _, field := range fields[14-3 : 18-3] {                     // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Consumption{}, fmt.Errorf("read what a process has used: %w", err)
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
