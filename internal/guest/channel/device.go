package channel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is a virtio-serial port as seen by the guest.
//
// It relies on these facts of Linux's virtio_console: without a connected host a
// read returns 0, a write EAGAIN, and poll POLLHUP; a waiting poller is woken
// when a host connects, hangs up, sends, or has taken data. A read returns at most
// one 4 KiB buffer; a write takes at most 32 KiB and, on a non-blocking
// descriptor, does not wait for the host. Go's poller is edge-triggered, so a
// permanent HUP does not spin.
type Device struct {
	file *os.File
	raw  syscall.RawConn
	gone bool // the hang-up has been returned; used by the reader only
}

// FindDevice returns the path of the virtio-serial port with that name, or an
// fs.ErrNotExist error. It needs devtmpfs and sysfs, but no udev.
func FindDevice(name string) (string, error) {
	dirs, err := filepath.Glob("/sys/class/virtio-ports/*")
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "name"))
		if err == nil && strings.TrimSpace(string(b)) == name {
			return filepath.Join("/dev", filepath.Base(dir)), nil
		}
	}
	return "", fmt.Errorf("find virtio-serial port %q: %w", name, os.ErrNotExist)
}

// OpenDevice opens a virtio-serial port by path.
func OpenDevice(path string) (*Device, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open port %s: %w", path, err)
	}
	return newDevice(fd, path)
}

func newDevice(fd int, path string) (*Device, error) {
	return deviceOf(os.NewFile(uintptr(fd), path)) // non-blocking, so Go's poller takes it
}

func deviceOf(file *os.File) (*Device, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Device{file: file, raw: raw}, nil
}

// Read fills p with the available bytes, with as many reads as needed.
func (d *Device) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	// The poller is armed before the first read, so that no change between a read
	// and the wait is lost.
	waitErr := d.raw.Read(func(fd uintptr) bool {
		n, err = d.readAll(fd, p)
		return n > 0 || err != nil
	})
	switch {
	case n > 0:
		return n, nil
	case errors.Is(waitErr, os.ErrDeadlineExceeded):
		d.file.SetReadDeadline(time.Time{})
		return 0, errWoken
	case waitErr != nil:
		return 0, waitErr
	}
	return 0, err
}

// readAll reads until p is full or nothing is available. A raw system call
// suffices, since the descriptor is non-blocking, and avoids the scheduler's
// overhead for every 4 KiB.
func (d *Device) readAll(fd uintptr, p []byte) (n int, err error) {
	for n < len(p) {
		got, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&p[n])), uintptr(len(p)-n))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			d.gone = false
			return n, nil
		case errno != 0:
			return n, errno
		case got == 0 && n > 0:
			return n, nil // returned by the next read
		case got == 0 && d.gone:
			return 0, nil // wait for a host
		case got == 0:
			d.gone = true
			return 0, io.EOF
		}
		d.gone = false
		n += int(got)
		if got < directRead {
			return n, nil // most likely all that is available
		}
	}
	return n, nil
}

func (d *Device) Write(p []byte) (n int, err error) {
	waitErr := d.raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			got, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[n])), uintptr(len(p)-n))
			switch errno {
			case 0:
				n += int(got)
			case unix.EINTR:
			case unix.EAGAIN:
				if hungUp(fd) {
					err = ErrHungUp
					return true
				}
				return false
			default:
				err = errno
				return true
			}
		}
		return true
	})
	if errors.Is(waitErr, os.ErrDeadlineExceeded) {
		d.file.SetWriteDeadline(time.Time{})
		return n, errWoken
	}
	if waitErr != nil {
		return n, waitErr
	}
	return n, err
}

func hungUp(fd uintptr) bool {
	set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(set, 0)
	return err == nil && set[0].Revents&unix.POLLHUP != 0
}

func (d *Device) wakeRead()  { d.file.SetReadDeadline(time.Unix(1, 0)) }
func (d *Device) wakeWrite() { d.file.SetWriteDeadline(time.Unix(1, 0)) }

// Close also ends running reads and writes.
func (d *Device) Close() error { return d.file.Close() }
