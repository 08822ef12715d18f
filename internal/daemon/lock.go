package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/flock"
)

// lockDir locks a data directory for this daemon, until [flock.Close] or the end of the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, hosterror.Describe(fmt.Errorf("make data directory: %w", err))
	}
	path := filepath.Join(dir, "lock")
	f, err := flock.Open(path, 0o600)
	if errors.Is(err, flock.ErrHeld) {
		b, _ := os.ReadFile(path)
		return nil, holt.Errorf(holt.Conflict, "another daemon (process %s) serves %s", strings.TrimSpace(string(b)), dir).
			WithHint("use that daemon, stop it with holt down, or use another directory with --data-dir")
	}
	if err != nil {
		return nil, hosterror.Describe(fmt.Errorf("lock data directory: %w", err))
	}
	// The process id is for people: an error is ignored.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}
