package computer

import (
	"context"
	"sync"

	"holt"
)

// syncing syncs the workspace while the guest is stopped for a snapshot, but no longer than it may
// be stopped.
type syncing struct {
	fsync func() error // cannot be interrupted
	wg    sync.WaitGroup
}

// within syncs once. If ctx ends first it returns, and wait waits for the sync.
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

func (s *syncing) wait() { s.wg.Wait() }
