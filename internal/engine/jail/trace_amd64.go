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

// announce installs a seccomp filter for programs that this thread starts. A
// call that opens a file for reading and writing with no other flag, as QEMU
// opens memory, stops for the tracer. Without a tracer such a call fails with
// ENOSYS.
func announce() error {
	const number, arch, flags = 0, 4, 16 + 2*8 // offsets in seccomp_data (seccomp(2)): the low half of the third argument
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
		return fmt.Errorf("trace opened files: %w", err)
	}
	return nil
}

// private continues a program that was started stopped by a thread that has
// called [announce]. The first time that the program opens each of the files
// for reading and writing, private makes that read-only. Then it detaches. If
// this process ends first, so does the program (ptrace(2)).
func private(pid int, files []string) error {
	if _, err := stop(pid); err != nil { // stopped before its first instruction
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

// next continues the program until the next traced call.
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

// stop waits until the program is stopped.
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

// readOnly changes the traced call if it opens one of the files in left.
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
