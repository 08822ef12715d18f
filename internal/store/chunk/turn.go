package chunk

import (
	"context"

	"holt"
)

// paceBytes is how much long work does between two calls of [Options.Pace].
const paceBytes = 1 << 20

// Turn waits until no other long work of this archive goes on, such as packing
// a workspace or collecting garbage, and makes others wait until end is called.
func (a *Archive) Turn(ctx context.Context) (end func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, holt.Errorf(holt.Timeout, "wait for other work of the archive: %w", ctx.Err())
	}
}

// pacer counts the bytes of one long work.
type pacer struct {
	a     *Archive
	since int
}

// did says that n more bytes are done, and rests when it is time to.
func (p *pacer) did(ctx context.Context, n int) error {
	p.since += n
	if p.a.opt.Pace == nil || p.since < paceBytes {
		return nil
	}
	p.since = 0
	return p.a.opt.Pace(ctx)
}
