package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// A client of a run may leave its own input unread until the run reads:
// commands of a shell loop share the loop's input, and what one command
// consumes the next one lacks. A pipe does not tell whether a process waits at
// its other end, but the kernel tells in which system call a thread waits.
const (
	wantedFirst = 2 * time.Millisecond   // interval of the first checks
	wantedMost  = 100 * time.Millisecond // and of the last ones, unless a check takes long
	wantedShare = 20                     // checks take at most 1/20 of the time
	wantedFDs   = 1024                   // descriptors of one poll or select to inspect

	pollRDNorm = 0x40 // POLLRDNORM
)

// InputWanted is what a sandbox's agent asks of its kernel, whose /proc tells of no
// thread in which system call it waits: a command of reboot(2) that Linux does not
// have. It returns 1 if a thread waits to read from the pipe whose other end is the descriptor, else 0.
const InputWanted = 0x696e7770

// awaitWantedBy is awaitWanted, and ends when the host sends something or is gone.
func (r *run) awaitWantedBy(ctx context.Context, st *serverStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := make(chan struct{}) // closed when the host is not read any more
	go func() {
		defer close(silent)
		if n, err := st.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
			cancel()
		}
	}()
	err := r.awaitWanted(ctx)
	st.SetReadDeadline(time.Unix(1, 0))
	<-silent
	st.SetReadDeadline(time.Time{})
	return err
}

// awaitWanted returns once a process of the run waits for input, or the run has ended.
func (r *run) awaitWanted(ctx context.Context) error {
	var st unix.Stat_t
	if err := withFD(r.stdin, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return holt.Errorf(holt.Conflict, "run %s has closed its input", r.group.id)
	}
	pipe := fmt.Sprintf("pipe:[%d]", st.Ino)
	wanted := func() bool {
		return slices.ContainsFunc(r.group.pids(), func(pid int) bool { return wantsFrom(pid, pipe) })
	}
	if _, err := os.Stat("/proc/self/syscall"); err != nil {
		wanted = r.wantedInSandbox
	}
	for wait := wantedFirst; ; wait = min(2*wait, wantedMost) {
		began := time.Now()
		if wanted() {
			return nil
		}
		select {
		case <-r.ended:
			return holt.Errorf(holt.Conflict, "run %s has ended", r.group.id)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(wait, wantedShare*time.Since(began))):
		}
	}
}

// wantedInSandbox asks gVisor whether a process waits for input. Where nothing can tell, it is always wanted.
func (r *run) wantedInSandbox() bool {
	wanted := true
	withFD(r.stdin, func(fd int) error {
		n, _, errno := unix.Syscall6(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, InputWanted, uintptr(fd), 0, 0)
		wanted = errno != 0 || n > 0
		return nil
	})
	return wanted
}

// wantsFrom reports whether a thread of a process waits for bytes of a pipe.
func wantsFrom(pid int, pipe string) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return false // it has ended
	}
	for _, thread := range threads {
		b, _ := os.ReadFile(dir + "/task/" + thread.Name() + "/syscall") // none of one that has ended
		var nr int
		var args [3]uint64
		if n, _ := fmt.Sscanf(string(b), "%d 0x%x 0x%x 0x%x", &nr, &args[0], &args[1], &args[2]); n == 4 &&
			slices.ContainsFunc(awaited(dir, nr, args), func(fd int) bool { return isPipe(dir, fd, pipe) }) {
			return true
		}
	}
	return false
}

func isPipe(dir string, fd int, pipe string) bool {
	to, err := os.Readlink(dir + "/fd/" + strconv.Itoa(fd))
	return err == nil && to == pipe
}

// awaited returns the descriptors that a thread waits to read from in a system call.
func awaited(dir string, nr int, args [3]uint64) []int {
	switch modern(nr) {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_PREADV2, unix.SYS_SPLICE, unix.SYS_TEE:
		return []int{int(int32(args[0]))}
	case unix.SYS_SENDFILE:
		return []int{int(int32(args[1]))}
	case unix.SYS_PPOLL:
		return polled(dir, args[0], args[1])
	case unix.SYS_PSELECT6:
		return selected(dir, args[0], args[1])
	case unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2:
		return watched(dir, int(int32(args[0])))
	case unix.SYS_IO_URING_ENTER: // the descriptors are only in its memory
		return openFDs(dir)
	}
	return nil
}

// memory reads a process's memory.
func memory(dir string, at uint64, n int) []byte {
	f, err := os.Open(dir + "/mem")
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		return nil
	}
	return b
}

// polled returns the descriptors polled for reading in an array of struct pollfd.
func polled(dir string, at, n uint64) (fds []int) {
	b := memory(dir, at, int(min(n, wantedFDs))*8)
	for ; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint16(b[4:])&(unix.POLLIN|pollRDNorm) != 0 {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(b))))
		}
	}
	return fds
}

// selected returns the descriptors below n in a fd_set.
func selected(dir string, n, at uint64) (fds []int) {
	b := memory(dir, at, wantedFDs/8)
	for fd := range int(min(n, wantedFDs)) {
		if fd/8 < len(b) && b[fd/8]&(1<<(fd%8)) != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// watched returns the descriptors of an epoll that wait for reading.
func watched(dir string, epoll int) (fds []int) {
	b, _ := os.ReadFile(dir + "/fdinfo/" + strconv.Itoa(epoll))
	for line := range bytes.Lines(b) {
		var fd int
		var events uint32
		if n, _ := fmt.Sscanf(string(line), "tfd: %d events: %x", &fd, &events); n == 2 && events&unix.EPOLLIN != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// openFDs returns all open descriptors.
func openFDs(dir string) (fds []int) {
	entries, _ := os.ReadDir(dir + "/fd")
	for _, e := range entries[:min(len(entries), wantedFDs)] {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}
