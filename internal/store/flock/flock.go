// Package flock locks whole files with flock(2). Processes use it to exclude each other from a directory. It does not
// wait and does not define what a lock protects.
//
// A lock belongs to the open file: processes that inherit the file share the lock. It ends when the last of them closes
// the file, or with [Close].
package flock

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld is returned if another process has the lock.
var ErrHeld = errors.New("the lock is held")

// Open opens or creates a file and locks it. It returns [ErrHeld] if another process has the lock.
func Open(path string, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	if err := Lock(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Lock locks an open file. It returns [ErrHeld] if another process has the lock.
func Lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case err != nil:
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

// Close unlocks f, if it is locked, and closes it. The explicit unlock matters:
// a child process has copies of all files until its exec, and a copy keeps the
// lock of a file that is only closed.
func Close(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
