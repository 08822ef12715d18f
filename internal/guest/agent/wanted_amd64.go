package agent

import "golang.org/x/sys/unix"

// modern returns the number of the system call that does the same with the same first arguments and that newer
// architectures have.
func modern(nr int) int {
	switch nr {
	case unix.SYS_POLL:
		return unix.SYS_PPOLL
	case unix.SYS_SELECT:
		return unix.SYS_PSELECT6
	case unix.SYS_EPOLL_WAIT:
		return unix.SYS_EPOLL_PWAIT
	}
	return nr
}
