package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/flock"
)

// lockDir makes sure that one daemon serves a data directory, until [flock.Close] or the end of the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, described(fmt.Errorf("make data directory: %w", err))
	}
	path := filepath.Join(dir, "lock")
	f, err := flock.Open(path, 0o600)
	if errors.Is(err, flock.ErrHeld) {
		b, _ := os.ReadFile(path)
		return nil, holt.Errorf(holt.Conflict, "a daemon (process %s) serves %s already", strings.TrimSpace(string(b)), dir).
			WithHint("use that one, end it with holt down, or name another directory with --data-dir")
	}
	if err != nil {
		return nil, described(fmt.Errorf("lock data directory: %w", err))
	}
	// The number is for people; that it cannot be written is no reason to stop.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// described gives an error of the host's file system the code that says what
// to do about it.
func described(err error) error {
	err = hosterror.Full(err)
	if holt.CodeOf(err) == holt.Internal && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)) {
		return holt.Errorf(holt.Forbidden, "%w", err).WithHint("run holt as a user who may write there, or name another directory with --data-dir")
	}
	return err
}
