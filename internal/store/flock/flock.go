// Package flock has locks on whole files (flock(2)), by which processes keep each other from one directory. It does not
// wait, and says nothing to people: what a lock protects is its caller's.
//
// A lock belongs to the open file: whoever inherits that has it too, and it ends with the last of them, or with [Close].
package flock

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld says that someone else has the lock.
var ErrHeld = errors.New("the lock is held")

// Open opens a file, which it makes if need be, and locks it; [ErrHeld] if someone else has.
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

// Lock locks a file that is open; [ErrHeld] if someone else has.
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

// Close lets go of the lock of f, if it has one, and closes f. A program that is being started has a copy of each file
// until it has exec'd, and the lock of a file that is only closed stays with that.
func Close(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
