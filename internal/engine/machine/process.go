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

// killWait is how long Kill waits for the kernel to end a process. A process in
// uninterruptible sleep (a dead disk) can take longer.
const killWait = 30 * time.Second

// Process identifies a host process across daemon restarts, process id reuse and reboots.
type Process struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`   // clock ticks from boot to its start, field 22 of proc_pid_stat(5)
	BootID string `json:"boot_id"` // /proc/sys/kernel/random/boot_id when it was started
}

// Identify returns the identity of the process with this pid.
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

// Open returns a handle on the process, or [ErrGone] if it has ended, even if
// its process id has been reused.
func (p Process) Open() (*Handle, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, holt.Errorf(holt.Unsupported, "open process %d: %w", p.PID, err).
			WithHint("holt needs pidfd_open (Linux 5.3) and PIDFD_NONBLOCK (5.10)")
	}
	// The pidfd refers to one process for ever. If the identity matches now and
	// that process is alive afterwards, they are the same.
	now, err := Identify(p.PID)
	if err == nil {
		err = unix.PidfdSendSignal(fd, 0, nil, 0)
	}
	if now != p || err != nil && !errors.Is(err, unix.EPERM) { // EPERM: alive, but of another user
		unix.Close(fd)
		return nil, ErrGone
	}
	return watch(fd, p), nil
}

// Kill kills the process and returns when it is gone. It is no error if the process has ended.
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

// startTime reads field 22 of /proc/pid/stat. The second field is the command
// in parentheses and may itself contain spaces and parentheses.
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

// parseStopped reports whether field 3 says that a process is stopped by a signal.
func parseStopped(stat []byte) bool {
	fields := afterCommand(stat)
	return len(fields) > 0 && string(fields[0]) == "T"
}

// afterCommand returns the fields of /proc/pid/stat from the third on.
func afterCommand(stat []byte) [][]byte {
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
}

// Handle refers to one process through a pidfd.
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

// wait returns when the process has ended or the handle is closed. A pidfd is
// readable once its process is a zombie, so no parent needs to reap it.
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

// Done is closed when the process has ended. After Close it does not change.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Stopped reports whether the process is stopped by a signal (SIGSTOP) until it gets SIGCONT.
func (h *Handle) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.PID))
	return err == nil && parseStopped(stat)
}

// Signal sends sig. It returns [ErrGone] if the process has ended,
// [os.ErrClosed] if the handle is closed.
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
	case <-h.stopped: // closed by a concurrent Close, or ended
		return nil
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "process %d still exists %v after SIGKILL", h.PID, killWait).
			WithHint("it waits in the kernel, usually for a disk; see /proc/%d/stack", h.PID)
	}
}

// Close closes the handle without ending the process.
func (h *Handle) Close() {
	h.pidfd.Close()
	<-h.stopped
}
