package jail

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// traces: see [Cell.Private].
const traces = true

// openat(2)'s number, and what its flags say of reading and writing.
const accessMode = unix.O_RDONLY | unix.O_WRONLY | unix.O_RDWR

// private lets a program that was started stopped go on, and has it open each of the files for reading once
// when it asks for writing too. Then it is let go. If this process ends before, so does the program (ptrace(2)).
func private(pid int, files []string) error {
	if err := await(pid); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESYSGOOD); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	left := map[string]bool{}
	for _, f := range files {
		left[f] = true
	}
	for begins := true; ; begins = !begins {
		if err := next(pid); err != nil {
			return err
		}
		if !begins {
			continue
		}
		if err := readOnly(pid, left); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		if len(left) == 0 {
			return unix.PtraceDetach(pid)
		}
	}
}

// next lets the program go on to the next begin or end of a system call.
func next(pid int) error {
	for signal := 0; ; {
		if err := unix.PtraceSyscall(pid, signal); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("trace: %w", err)
		}
		switch {
		case status.Exited() || status.Signaled():
			return errEnded
		case status.StopSignal() == unix.SIGTRAP|0x80:
			return nil
		}
		signal = int(status.StopSignal())
	}
}

var errEnded = errors.New("the program has ended")

// await waits until the program stands before its first instruction.
func await(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("trace: %w", err)
		case status.Stopped():
			return nil
		default:
			return errEnded
		}
	}
}

// readOnly changes the call that begins if it opens one of the files that are left.
func readOnly(pid int, left map[string]bool) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	if regs.Orig_rax != unix.SYS_OPENAT || regs.Rdx&accessMode != unix.O_RDWR {
		return nil
	}
	for file := range left {
		b := make([]byte, len(file)+1)
		if n, err := unix.PtracePeekData(pid, uintptr(regs.Rsi), b); err != nil || n < len(b) || !bytes.Equal(b, append([]byte(file), 0)) {
			continue
		}
		delete(left, file)
		regs.Rdx &^= accessMode
		return unix.PtraceSetRegs(pid, &regs)
	}
	return nil
}
