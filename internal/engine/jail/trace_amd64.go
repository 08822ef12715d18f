package jail

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// traces: see [Cell.Private].
const traces = true

// announce has what this thread starts from now on stop for who traces it when it opens something as QEMU opens
// memory: for reading and writing, and with no other flag. Nothing else that it does stops it. Without who traces it
// such a call says that there is none (ENOSYS).
func announce() error {
	const number, arch, flags = 0, 4, 16 + 2*8 // in seccomp_data (seccomp(2)); of the third argument the low half
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(is uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: is, Jf: skip}
	}
	end := func(as uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: as}
	}
	filter := []unix.SockFilter{
		load(arch), unless(unix.AUDIT_ARCH_X86_64, 5),
		load(number), unless(unix.SYS_OPENAT, 3),
		load(flags), unless(unix.O_RDWR, 1),
		end(unix.SECCOMP_RET_TRACE),
		end(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("announce what is opened: %w", err)
	}
	return nil
}

// private lets a program that was started stopped, by a thread that has called [announce], go on, and has it open
// each of the files for reading once when it asks for writing too. Then it is let go. If this process ends before, so
// does the program (ptrace(2)).
func private(pid int, files []string) error {
	if _, err := stop(pid); err != nil { // before its first instruction
		return err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESECCOMP); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	left := map[string]bool{}
	for _, f := range files {
		left[f] = true
	}
	for {
		if err := next(pid); err != nil {
			return err
		}
		if err := readOnly(pid, left); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		if len(left) == 0 {
			return unix.PtraceDetach(pid)
		}
	}
}

// next lets the program go on to the next call that is announced.
func next(pid int) error {
	for signal := 0; ; {
		if err := unix.PtraceCont(pid, signal); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		status, err := stop(pid)
		if err != nil || status.TrapCause() == unix.PTRACE_EVENT_SECCOMP {
			return err
		}
		signal = int(status.StopSignal())
	}
}

var errEnded = errors.New("the program has ended")

// stop waits until the program stands.
func stop(pid int) (status unix.WaitStatus, err error) {
	for {
		switch _, err := unix.Wait4(pid, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return status, fmt.Errorf("trace: %w", err)
		case !status.Stopped():
			return status, errEnded
		default:
			return status, nil
		}
	}
}

// readOnly changes the call that begins if it opens one of the files that are left.
func readOnly(pid int, left map[string]bool) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	for file := range left {
		b := make([]byte, len(file)+1)
		if n, err := unix.PtracePeekData(pid, uintptr(regs.Rsi), b); err != nil || n < len(b) || !bytes.Equal(b, append([]byte(file), 0)) {
			continue
		}
		delete(left, file)
		regs.Rdx = unix.O_RDONLY
		return unix.PtraceSetRegs(pid, &regs)
	}
	return nil
}
