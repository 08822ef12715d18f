package machine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"holt"
)

// MinFreeMB is the minimum free space on the host's disk for creating a disk
// and for resuming a guest that ran out of space, MiB. Disks are thin: they
// grow as they are written.
const MinFreeMB = 64

// Room returns OutOfSpace if fewer than mb MiB are free in dir.
func Room(dir string, mb int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("get free space in %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize >> 20; free < mb {
		return fullDisk(dir, free, mb)
	}
	return nil
}

// FullDisk returns the error for a host's disk without free space.
func FullDisk(dir string) error { return fullDisk(dir, 0, MinFreeMB) }

func fullDisk(dir string, freeMB, needMB int64) error {
	return holt.Errorf(holt.OutOfSpace, "the host's disk at %s is full: %d MiB are free", dir, freeMB).
		WithHint("free some space: at least %d MiB are needed", needMB)
}
