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
// It is non-blocking, and its reads and replies are raw system calls. A Go system
// call that blocks, or that follows an idle period, wakes the runtime's monitor
// thread, which then polls every 20 µs until the program is idle again: in an
// emulated guest that is half of the cost of a request.
type FuseDevice struct {
	file *os.File
	raw  syscall.RawConn
}

// NewFuseDevice takes ownership of fd, even if it fails.
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

// TryRead does not wait: it returns EAGAIN if there is no request.
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

// Reply writes a reply. The kernel accepts it without waiting.
func (d *FuseDevice) Reply(p []byte) error {
	return d.write(func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		return n, errno
	})
}

// Notify writes a notification, which may block until a request is answered. It
// does not block replies: neither holds the descriptor's lock.
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

// StopReading ends a running Read; later reads fail.
func (d *FuseDevice) StopReading() error { return d.file.SetReadDeadline(time.Unix(1, 0)) }

// Close also ends a running Read.
func (d *FuseDevice) Close() error { return d.file.Close() }
