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

// A client of a run may leave its own input alone until the run reads: a shell's loop has the
// same input, and what one command takes of it the next one lacks. A pipe does not tell that
// somebody waits at its other end, but the kernel tells in what system call a thread waits.
const (
	wantedFirst = 2 * time.Millisecond   // between the first looks
	wantedMost  = 100 * time.Millisecond // and the last ones, unless a look itself takes long
	wantedShare = 20                     // a look takes at most one part in so many of the time
	wantedFDs   = 1024                   // descriptors of one poll or select that are looked at

	pollRDNorm = 0x40 // POLLRDNORM
)

// awaitWantedBy is awaitWanted for a host that says nothing until then, or goes.
func (r *run) awaitWantedBy(ctx context.Context, st *serverStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := make(chan struct{}) // closed when the host is no longer listened to
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
		return holt.Errorf(holt.Conflict, "run %s takes no more input", r.group.id)
	}
	pipe := fmt.Sprintf("pipe:[%d]", st.Ino)
	for wait := wantedFirst; ; wait = min(2*wait, wantedMost) {
		began := time.Now()
		if slices.ContainsFunc(r.group.pids(), func(pid int) bool { return wantsFrom(pid, pipe) }) {
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

// wantsFrom tells whether a thread of a process waits for bytes of a pipe.
func wantsFrom(pid int, pipe string) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return false // it has ended
	}
	for _, thread := range threads {
		b, err := os.ReadFile(dir + "/task/" + thread.Name() + "/syscall")
		if os.IsNotExist(err) {
			if _, err := os.Stat("/proc/self/syscall"); err != nil {
				return true // a kernel that does not tell
			}
		}
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
	switch nr {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_PREADV2, unix.SYS_SPLICE, unix.SYS_TEE:
		return []int{int(int32(args[0]))}
	case unix.SYS_SENDFILE:
		return []int{int(int32(args[1]))}
	case unix.SYS_POLL, unix.SYS_PPOLL:
		return polled(dir, args[0], args[1])
	case unix.SYS_SELECT, unix.SYS_PSELECT6:
		return selected(dir, args[0], args[1])
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2:
		return watched(dir, int(int32(args[0])))
	case unix.SYS_IO_URING_ENTER: // what for only its memory says
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

// polled are the descriptors of an array of struct pollfd that are to be readable.
func polled(dir string, at, n uint64) (fds []int) {
	b := memory(dir, at, int(min(n, wantedFDs))*8)
	for ; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint16(b[4:])&(unix.POLLIN|pollRDNorm) != 0 {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(b))))
		}
	}
	return fds
}

// selected are the first n descriptors of a fd_set.
func selected(dir string, n, at uint64) (fds []int) {
	b := memory(dir, at, wantedFDs/8)
	for fd := range int(min(n, wantedFDs)) {
		if fd/8 < len(b) && b[fd/8]&(1<<(fd%8)) != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// watched are the descriptors in an epoll that are to be readable.
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

// openFDs are all descriptors.
func openFDs(dir string) (fds []int) {
	entries, _ := os.ReadDir(dir + "/fd")
	for _, e := range entries[:min(len(entries), wantedFDs)] {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}
