package agent

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fuseDevice is the descriptor of one FUSE mount.
//
// It does not block, and its reads and replies are raw system calls. A Go
// system call that waits, or that comes after the program had nothing to do,
// wakes the runtime's monitor thread, which then looks around every 20 µs until
// the program rests again: in an emulated guest that is half of what a request costs.
type fuseDevice struct {
	file *os.File
	raw  syscall.RawConn
}

// newFuseDevice owns fd, also when it fails.
func newFuseDevice(fd int) (*fuseDevice, error) {
	file := os.NewFile(uintptr(fd), "/dev/fuse") // non-blocking, so Go's poller takes it
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &fuseDevice{file: file, raw: raw}, nil
}

// read waits for a request.
func (d *fuseDevice) read(p []byte) (n int, err error) {
	waitErr := d.raw.Read(func(fd uintptr) bool {
		got, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if errno == unix.EAGAIN {
			return false
		}
		if n = int(got); errno != 0 {
			n, err = 0, errno
		}
		return true
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// reply hands over an answer. The kernel takes it without waiting for anybody.
func (d *fuseDevice) reply(p []byte) error {
	return d.write(func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		return n, errno
	})
}

// notify hands over a notification, which may wait for as long as a request
// is not answered. Replies go past it: neither holds the descriptor's lock.
func (d *fuseDevice) notify(p []byte) error {
	return d.write(func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		return n, errno
	})
}

func (d *fuseDevice) write(call func(fd uintptr) (uintptr, unix.Errno)) error {
	var errno unix.Errno
	if err := d.raw.Control(func(fd uintptr) { _, errno = call(fd) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Close ends a read in progress.
func (d *fuseDevice) Close() error { return d.file.Close() }
