package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// killWait bounds how long Kill waits for the kernel to tear a process down.
// A process in uninterruptible sleep (a dead disk) can outlast it.
const killWait = 30 * time.Second

// Process is the identity of a host process across daemon restarts, process id
// reuse and reboots.
type Process struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`   // clock ticks from boot to its start, field 22 of proc_pid_stat(5)
	BootID string `json:"boot_id"` // /proc/sys/kernel/random/boot_id when it was started
}

// Identify returns the identity of the process that has pid now.
func Identify(pid int) (Process, error) {
	boot, err := BootID()
	if err != nil {
		return Process{}, err
	}
	start, err := startTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start, BootID: boot}, nil
}

// BootID returns the random id of this boot of the host.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Open returns a handle on the process, or [ErrGone] if it has ended, whatever
// runs under its process id now.
func (p Process) Open() (*Handle, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, holt.Errorf(holt.Unsupported, "open process %d: %w", p.PID, err).
			WithHint("holt needs pidfd_open (Linux 5.3) and PIDFD_NONBLOCK (5.10)")
	}
	// The pidfd names one process for ever. If the identity holds now and that
	// process still lives afterwards, they are the same.
	now, err := Identify(p.PID)
	if err == nil {
		err = unix.PidfdSendSignal(fd, 0, nil, 0)
	}
	if now != p || err != nil && !errors.Is(err, unix.EPERM) { // EPERM: it lives, and is another user's
		unix.Close(fd)
		return nil, ErrGone
	}
	return watch(fd, p), nil
}

// Kill ends the process and returns when it is gone. A process that is gone
// already is no error.
func (p Process) Kill() error {
	h, err := p.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Kill()
}

// startTime reads field 22 of /proc/pid/stat. The second field is the
// command in parentheses and may itself hold spaces and parentheses.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read start time: %w", err)
	}
	return parseStart(b)
}

func parseStart(stat []byte) (uint64, error) {
	const start = 22 - 3 // field 3 has index 0
	fields := afterCommand(stat)
	if len(fields) <= start {
		return 0, fmt.Errorf("read start time: %d fields in stat", len(fields))
	}
	return strconv.ParseUint(string(fields[start]), 10, 64)
}

// parseStopped tells whether a process is stopped by a signal: field 3.
func parseStopped(stat []byte) bool {
	fields := afterCommand(stat)
	return len(fields) > 0 && string(fields[0]) == "T"
}

// afterCommand returns the fields of /proc/pid/stat from the third on.
func afterCommand(stat []byte) [][]byte {
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
}

// Handle holds on to one process through a pidfd.
type Handle struct {
	Process
	pidfd   *os.File
	done    chan struct{} // closed when the process has ended
	stopped chan struct{} // closed when the watching goroutine has
}

// watch takes ownership of pidfd.
func watch(pidfd int, p Process) *Handle {
	h := &Handle{
		Process: p,
		pidfd:   os.NewFile(uintptr(pidfd), "pidfd"),
		done:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	go h.wait()
	return h
}

// wait returns when the process has ended or the handle is closed. A pidfd
// polls readable once its process is a zombie, so it needs no parent that reaps.
func (h *Handle) wait() {
	defer close(h.stopped)
	conn, err := h.pidfd.SyscallConn()
	if err != nil {
		return // closed before the goroutine ran
	}
	ended := false
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ended = err == nil && n == 1
		return ended
	})
	if err == nil && ended {
		close(h.done)
	}
}

// Done is closed when the process has ended; never after Close unless before.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Stopped tells whether the process is stopped by a signal (SIGSTOP), and so does nothing until it is sent SIGCONT.
func (h *Handle) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.PID))
	return err == nil && parseStopped(stat)
}

// Signal sends sig. A process that has ended gives [ErrGone], a closed handle
// [os.ErrClosed].
func (h *Handle) Signal(sig unix.Signal) error {
	conn, err := h.pidfd.SyscallConn()
	if err != nil {
		return os.ErrClosed
	}
	var errno error
	if conn.Control(func(fd uintptr) { errno = unix.PidfdSendSignal(int(fd), sig, nil, 0) }) != nil {
		return os.ErrClosed
	}
	if errors.Is(errno, unix.ESRCH) {
		return ErrGone
	}
	return errno
}

// Kill sends SIGKILL and returns when the process is gone.
func (h *Handle) Kill() error {
	if err := h.Signal(unix.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("kill process %d: %w", h.PID, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	select {
	case <-h.done:
		return nil
	case <-h.stopped: // closed by Close at the same time, or ended
		return nil
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "process %d was killed %v ago and is not gone", h.PID, killWait).
			WithHint("it waits in the kernel, most often for a disk; see /proc/%d/stack", h.PID)
	}
}

// Close lets go of the process without ending it.
func (h *Handle) Close() {
	h.pidfd.Close()
	<-h.stopped
}
