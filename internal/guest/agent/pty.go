package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"holt"
)

// The default size of a terminal.
const (
	defaultRows = 24
	defaultCols = 80
)

// openPTY opens a pseudo-terminal owned by a user: master is the agent's end,
// which does not block threads; slave is the program's.
func openPTY(uid uint32, size holt.TerminalSize) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, noPTY(err)
	}
	m := os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock pseudo-terminal: %w", err)
	}
	// TIOCGPTPEER, because its name in /dev/pts may be missing or in another mount namespace.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, nil, fmt.Errorf("open the other end of a pseudo-terminal: %w", errno)
	}
	slave = os.NewFile(peer, "/dev/pts")
	if err = slave.Chown(int(uid), -1); err == nil {
		err = setSize(m, size)
	}
	if err != nil {
		slave.Close()
		return nil, nil, fmt.Errorf("prepare pseudo-terminal: %w", err)
	}
	return m, slave, nil
}

// noPTY returns the error for a failed openPTY.
func noPTY(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return holt.Errorf(holt.TooMany, "open a pseudo-terminal: %w", err).
			WithHint("all pseudo-terminals of the computer are in use: end some of its terminals, or other programs that use them")
	}
	return holt.Errorf(holt.Unavailable, "open a pseudo-terminal: %w", err).
		WithHint("check that the computer has /dev/ptmx, and a file system mounted at /dev/pts")
}

// bounded returns a size within the limits of programs.
func bounded(size holt.TerminalSize) holt.TerminalSize {
	if size.Rows == 0 {
		size.Rows = defaultRows
	}
	if size.Cols == 0 {
		size.Cols = defaultCols
	}
	size.Rows, size.Cols = min(size.Rows, holt.MostTerminalSize), min(size.Cols, holt.MostTerminalSize)
	return size
}

// setSize sets a terminal's size. If that is a change, the kernel sends
// SIGWINCH to the foreground programs.
func setSize(master *os.File, size holt.TerminalSize) error {
	size = bounded(size)
	return withFD(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// foreground returns the foreground process group of the terminal of g's
// programs; 0: none. gVisor tells it only to them: then it is the newest of the
// process groups in the session of g's first process.
func foreground(master *os.File, g group) (front int) {
	err := withFD(master, func(fd int) (err error) {
		front, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != unix.ENOTTY {
		return max(front, 0)
	}
	pids := g.pids()
	slices.Sort(pids)
	session := 0
	for _, pid := range pids {
		is, err := unix.Getsid(pid)
		one, err2 := unix.Getpgid(pid)
		if err != nil || err2 != nil {
			continue // it has ended
		}
		if session == 0 {
			session = is
		}
		if is == session {
			front = max(front, one)
		}
	}
	return front
}

func withFD(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}
