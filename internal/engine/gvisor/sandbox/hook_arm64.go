package sandbox

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

var table = linux.ARM64

var archPathCalls []uintptr

// openCalls are calls that open a file, and which of their arguments are the flags.
var openCalls = map[uintptr]int{unix.SYS_OPENAT: 2}

// archWaits are calls that wait for descriptors, and a call with the same first arguments.
var archWaits map[uintptr]uintptr
