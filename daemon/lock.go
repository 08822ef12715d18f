package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/computer"
)

// dirLock is the lock of a data directory.
type dirLock struct{ *os.File }

// Close lets go of it. A program that is being started has a copy of each file until it has
// exec'd, and the lock of a file that is only closed stays with that.
func (l *dirLock) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// lockDir makes sure that one daemon serves a data directory. The lock is
// held until the file is closed, or the process ends.
func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, described(fmt.Errorf("make data directory: %w", err))
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, described(fmt.Errorf("lock data directory: %w", err))
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		b, _ := io.ReadAll(io.LimitReader(f, 32))
		f.Close()
		return nil, holt.Errorf(holt.Conflict, "a daemon (process %s) serves %s already", strings.TrimSpace(string(b)), dir).
			WithHint("use that one, end it with holt down, or name another directory with --data-dir")
	}
	if err == nil {
		// The number is for people; that it cannot be written is no reason to stop.
		if f.Truncate(0) == nil {
			fmt.Fprintf(f, "%d\n", os.Getpid())
		}
		return &dirLock{f}, nil
	}
	f.Close()
	return nil, fmt.Errorf("lock data directory: %w", err)
}

// described gives an error of the host's file system the code that says what
// to do about it.
func described(err error) error {
	err = computer.HostError(err)
	if holt.CodeOf(err) == holt.Internal && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)) {
		return holt.Errorf(holt.Denied, "%w", err).WithHint("run holt as a user who may write there, or name another directory with --data-dir")
	}
	return err
}
