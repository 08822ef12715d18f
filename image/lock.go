package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 100 * time.Millisecond

// lock waits for the named lock of the store and returns what releases it.
// waiting is called once if another process or goroutine holds it. Lock files are
// never removed: who waits for one must find the same file that others lock.
func (s *Store) lock(ctx context.Context, name string, waiting func()) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "locks", name+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	for first := true; ; first = false {
		locked, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if locked {
			return func() { unlock(f) }, nil
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another build of %s: %w", name, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// tryLock locks f unless someone else has it open and locked. The lock ends
// with [unlock], or when the last descriptor of f is closed, also by the death of its processes.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// unlock lets go of a lock. A program that is being started has a copy of each file until it has
// exec'd, and the lock of a file that is only closed stays with that.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // fails if it was not locked
	f.Close()
}
