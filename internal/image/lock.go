package image

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"holt/internal/store/flock"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 100 * time.Millisecond

// lock waits for the named lock of the store and returns what releases it.
// waiting is called once if another process or goroutine holds it. Lock files are
// never removed: who waits for one must find the same file that others lock.
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
