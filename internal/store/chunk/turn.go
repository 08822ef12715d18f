package chunk

import (
	"context"

	"holt"
)

// paceBytes is the amount of background work between two calls of [Options.Pace].
const paceBytes = 1 << 20

// Turn acquires the semaphore for background work (packing, collecting), which
// one holder has at a time. end releases it.
func (a *Archive) Turn(ctx context.Context) (end func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, holt.Errorf(holt.Timeout, "wait for other work of the archive: %w", ctx.Err())
	}
}

// pacer counts the bytes of one background job.
type pacer struct {
	a     *Archive
	since int
}

// did reports that n more bytes are done, and pauses when it is time to.
func (p *pacer) did(ctx context.Context, n int) error {
	p.since += n
	if p.a.opt.Pace == nil || p.since < paceBytes {
		return nil
	}
	p.since = 0
	return p.a.opt.Pace(ctx)
}
