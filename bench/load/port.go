package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The bare end of a byte channel: no frames, no multiplexing, nothing done
// with the bytes. What it moves in a second is the bound of whatever is built
// on the channel.
//
// A host writes orders of 9 bytes to the port named "files": 'i', 'o' or 'd', and a
// number, little-endian. 'i': so many bytes follow, which are dropped and then
// answered with one byte. 'o': so many bytes are sent. 'd': so much memory is held,
// MiB; one byte answers then. Every other byte is answered with itself, so that
// the host knows it is there.
const (
	orderIn   = 'i'
	orderOut  = 'o'
	orderHold = 'd'
	orderSize = 9
	portName  = "files"
	portPiece = 32 << 10 // the most that the kernel takes at once
)

// serveGuest is /init: it loads the modules that the initramfs brought and
// serves the port until the machine is killed.
func serveGuest() error {
	for _, m := range [][2]string{{"proc", "proc"}, {"sys", "sysfs"}, {"dev", "devtmpfs"}} {
		if err := unix.Mount(m[0], "/"+m[0], m[1], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[0], err)
		}
	}
	modules, err := filepath.Glob("/m/*.ko") // numbered in the order of loading
	if err != nil {
		return err
	}
	for _, name := range modules {
		if err := loadModule(name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	fd, err := openPort(portName)
	if err != nil {
		return err
	}
	fmt.Println("load: the port is open")
	return servePort(portFile(fd))
}

func loadModule(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// openPort waits until the port is there: its device appears some time after
// its driver. The descriptor blocks, which costs the guest least.
func openPort(name string) (int, error) {
	for range 1000 {
		ports, err := filepath.Glob("/sys/class/virtio-ports/*")
		if err != nil {
			return 0, err
		}
		for _, p := range ports {
			b, err := os.ReadFile(p + "/name")
			if err == nil && strings.TrimSpace(string(b)) == name {
				return unix.Open("/dev/"+filepath.Base(p), unix.O_RDWR, 0)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, fmt.Errorf("there is no port %q", name)
}

// portFile is a port's descriptor. A read of 0 bytes says that no host is
// there yet.
type portFile int

func (p portFile) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(p), b)
		if n > 0 || err != nil && err != unix.EINTR {
			return n, err
		}
		time.Sleep(time.Millisecond)
	}
}

func (p portFile) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		w, err := unix.Write(int(p), b[n:])
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return n, err
		}
		n += max(w, 0)
	}
	return len(b), nil
}

// servePort obeys orders until the port fails.
func servePort(port io.ReadWriter) error {
	buf := make([]byte, portPiece)
	zeros := bytes.Repeat([]byte{0}, portPiece)
	order := make([]byte, orderSize)
	var held memory
	defer func() { runtime.KeepAlive(held) }()
	for {
		if _, err := io.ReadFull(port, order[:1]); err != nil {
			return err
		}
		if order[0] != orderIn && order[0] != orderOut && order[0] != orderHold {
			if _, err := port.Write(order[:1]); err != nil {
				return err
			}
			continue
		}
		if _, err := io.ReadFull(port, order[1:]); err != nil {
			return err
		}
		if order[0] == orderHold {
			held = take(int(binary.LittleEndian.Uint64(order[1:])))
			if _, err := port.Write([]byte{orderHold}); err != nil {
				return err
			}
			continue
		}
		left := int64(binary.LittleEndian.Uint64(order[1:]))
		for left > 0 {
			var n int
			var err error
			if order[0] == orderIn {
				n, err = port.Read(buf[:min(left, portPiece)])
			} else {
				n, err = port.Write(zeros[:min(left, portPiece)])
			}
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		if order[0] == orderIn {
			if _, err := port.Write([]byte{orderIn}); err != nil {
				return err
			}
		}
	}
}
