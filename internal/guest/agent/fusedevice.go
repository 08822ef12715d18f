package agent

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FuseDevice is the descriptor of one FUSE mount.
//
// It does not block, and its reads and replies are raw system calls. A Go
// system call that waits, or that comes after the program had nothing to do,
// wakes the runtime's monitor thread, which then looks around every 20 µs until
// the program rests again: in an emulated guest that is half of what a request costs.
type FuseDevice struct {
	file *os.File
	raw  syscall.RawConn
}

// NewFuseDevice owns fd, also when it fails.
func NewFuseDevice(fd int) (*FuseDevice, error) {
	file := os.NewFile(uintptr(fd), "/dev/fuse") // non-blocking, so Go's poller takes it
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &FuseDevice{file: file, raw: raw}, nil
}

// Read waits for a request.
func (d *FuseDevice) Read(p []byte) (n int, err error) { return d.read(p, true) }

// TryRead does not wait: EAGAIN if there is no request.
func (d *FuseDevice) TryRead(p []byte) (n int, err error) { return d.read(p, false) }

func (d *FuseDevice) read(p []byte, wait bool) (n int, err error) {
	waitErr := d.raw.Read(func(fd uintptr) bool {
		got, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if errno == unix.EAGAIN && wait {
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

// Reply hands over an answer. The kernel takes it without waiting for anybody.
func (d *FuseDevice) Reply(p []byte) error {
	return d.write(func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		return n, errno
	})
}

// Notify hands over a notification, which may wait for as long as a request
// is not answered. Replies go past it: neither holds the descriptor's lock.
func (d *FuseDevice) Notify(p []byte) error {
	return d.write(func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		return n, errno
	})
}

func (d *FuseDevice) write(call func(fd uintptr) (uintptr, unix.Errno)) error {
	var errno unix.Errno
	if err := d.raw.Control(func(fd uintptr) { _, errno = call(fd) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// StopReading ends a read in progress; no later one reads anything.
func (d *FuseDevice) StopReading() error { return d.file.SetReadDeadline(time.Unix(1, 0)) }

// Close ends a read in progress.
func (d *FuseDevice) Close() error { return d.file.Close() }
