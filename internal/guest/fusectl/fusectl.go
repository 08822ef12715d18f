// Package fusectl ends FUSE connections from outside, through the kernel's
// control file system (fuse(4) in the kernel's Documentation/filesystems).
//
// It is no FUSE server and knows no mounts: a connection is a number, the minor
// number of its file system's device.
package fusectl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Abort ends a connection: every process that waits for it gets an error, and
// so does every later one. One that has ended is no error. It needs root, or
// the control file system mounted at its usual place and to be the owner.
func Abort(connection uint32) error {
	file := filepath.Join(strconv.FormatUint(uint64(connection), 10), "abort")
	err := os.WriteFile(filepath.Join("/sys/fs/fuse/connections", file), []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) && os.Geteuid() == 0 {
		err = abortDetached(file)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // it ended by itself
	}
	return err
}

// abortDetached writes into the control file system where nobody mounted it,
// through a mount of it that has no place in the tree of files.
func abortDetached(file string) error {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open fusectl: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("create fusectl: %w", err)
	}
	dir, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("1"))
	return err
}
