package sandbox

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

var table = linux.AMD64

var archPathCalls = []uintptr{
	unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_SYMLINK, unix.SYS_LINK, unix.SYS_UNLINK, unix.SYS_RMDIR,
	unix.SYS_RENAME, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}

// openCalls are calls that open a file, and which of their arguments are the flags.
var openCalls = map[uintptr]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}

// archWaits are calls that wait for descriptors, and a call with the same first arguments.
var archWaits = map[uintptr]uintptr{unix.SYS_POLL: unix.SYS_PPOLL, unix.SYS_SELECT: unix.SYS_PSELECT6, unix.SYS_EPOLL_WAIT: unix.SYS_EPOLL_PWAIT}
