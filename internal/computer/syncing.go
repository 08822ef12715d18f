package computer

import (
	"context"
	"sync"

	"holt"
)

// syncing puts the rest of what a guest has written to its workspace on the host's disk while it
// stands, and no longer than it may.
type syncing struct {
	fsync func() error // cannot be interrupted
	wg    sync.WaitGroup
}

// within syncs once. If ctx ends before, it returns, and the sync goes on until wait has returned.
func (s *syncing) within(ctx context.Context) error {
	done := make(chan error, 1)
	s.wg.Go(func() { done <- s.fsync() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return holt.Errorf(holt.Timeout, "syncing the workspace to the host's disk took too long: %w", ctx.Err()).
			WithHint("the computer keeps running; try again when the computer and the host write less")
	}
}

// wait waits for all syncs.
func (s *syncing) wait() { s.wg.Wait() }
