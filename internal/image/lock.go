package image

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"holt/internal/store/flock"
)

// lockPoll is the interval between tries of a lock.
const lockPoll = 100 * time.Millisecond

// lock waits for the named lock of the store and returns a function that releases it.
// waiting is called once if another process or goroutine holds it. Lock files are
// never removed, so that all processes lock the same file.
func (s *Store) lock(ctx context.Context, name string, waiting func()) (release func(), err error) {
	path := filepath.Join(s.dir, "locks", name+".lock")
	for first := true; ; first = false {
		f, err := flock.Open(path, 0o600)
		if err == nil {
			return func() { flock.Close(f) }, nil
		}
		if !errors.Is(err, flock.ErrHeld) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build of %s: %w", name, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
