package agent

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/fs.h and fs/ext4/ext4.h.
const (
	ioctlDeviceSize = 0x80081272 // BLKGETSIZE64: bytes
	ioctlResize     = 0x40086610 // EXT4_IOC_RESIZE_FS: the new size, blocks
)

// growRoot grows the ext4 file system mounted on dir to the size of its device.
// A file system that fills its device is not changed.
func growRoot(device, dir string) error {
	size, err := deviceSize(device)
	if err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	blocks := size / uint64(fs.Bsize)
	if err := ioctl(root, ioctlResize, &blocks); err != nil {
		return fmt.Errorf("grow to %d blocks of %d bytes: %w", blocks, fs.Bsize, err)
	}
	return nil
}

// deviceSize returns the size of a disk according to the kernel, bytes.
func deviceSize(device string) (size uint64, err error) {
	disk, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer disk.Close()
	if err := ioctl(disk, ioctlDeviceSize, &size); err != nil {
		return 0, fmt.Errorf("size of %s: %w", device, err)
	}
	return size, nil
}

func ioctl(f *os.File, request uintptr, value *uint64) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
		return errno
	}
	return nil
}
