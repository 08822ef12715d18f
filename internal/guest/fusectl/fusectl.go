// Package fusectl aborts FUSE connections through the kernel's control file
// system (fuse(4) in the kernel's Documentation/filesystems).
//
// It is not a FUSE server and does not know mounts: a connection is identified by
// the minor number of its file system's device.
package fusectl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Abort aborts a connection: all processes that wait for it, and all later
// requests, get an error. A connection that has ended is no error. It needs
// root, or the owner's rights if the control file system is mounted at its
// usual place.
func Abort(connection uint32) error {
	file := filepath.Join(strconv.FormatUint(uint64(connection), 10), "abort")
	err := os.WriteFile(filepath.Join("/sys/fs/fuse/connections", file), []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) && os.Geteuid() == 0 {
		err = abortDetached(file)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has ended
	}
	return err
}

// abortDetached writes to the control file system, if it is not mounted, through a detached mount.
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
