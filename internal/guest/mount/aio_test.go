package mount

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestDirectWriteBesideReads: later buffered reads see an asynchronous direct
// write, whatever they read during it.
func TestDirectWriteBesideReads(t *testing.T) { onBoth(t, directWriteBesideReads) }

func directWriteBesideReads(t *testing.T, _ *workspace.Workspace, dir string) {
	path := filepath.Join(dir, "f")
	writeFile(t, path, string(make([]byte, os.Getpagesize())))
	direct, buffered := openFile(t, path, unix.O_RDWR|unix.O_DIRECT), openFile(t, path, unix.O_RDONLY)
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	var aio uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&aio)), 0); errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Syscall(unix.SYS_IO_DESTROY, aio, 0, 0)
	var stop atomic.Bool
	reads := make(chan error)
	go func() {
		buf := make([]byte, len(page))
		var err error
		for err == nil && !stop.Load() {
			_, err = unix.Pread(buffered, buf, 0)
		}
		reads <- err
	}()
	got := make([]byte, len(page))
	for i := range 300 {
		copy(page, bytes.Repeat([]byte{byte(i + 1)}, len(page)))
		writeAsynchronously(t, aio, direct, page)
		if _, err := unix.Pread(buffered, got, 0); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, page) {
			t.Errorf("after write %d a read sees %d", i+1, got[0])
			break
		}
	}
	stop.Store(true)
	if err := <-reads; err != nil {
		t.Error(err)
	}
}

// writeAsynchronously writes to the beginning of a file with io_submit(2) and waits for completion.
func writeAsynchronously(t *testing.T, aio uintptr, fd int, data []byte) {
	t.Helper()
	request := struct { // struct iocb of linux/aio_abi.h
		data      uint64
		key, rw   uint32
		opcode    uint16
		priority  int16
		fd        uint32
		buf, size uint64
		off       int64
		reserved  uint64
		flags     uint32
		result    uint32
	}{opcode: 1, fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&data[0]))), size: uint64(len(data))}
	list := [1]unsafe.Pointer{unsafe.Pointer(&request)}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, aio, 1, uintptr(unsafe.Pointer(&list[0]))); errno != 0 {
		t.Fatal(errno)
	}
	var event struct {
		data, object uint64
		result       [2]int64
	}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, aio, 1, 1, uintptr(unsafe.Pointer(&event)), 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	if event.result[0] != int64(len(data)) {
		t.Fatalf("write: %d", event.result[0])
	}
}
