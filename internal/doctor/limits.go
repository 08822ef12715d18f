package doctor

import (
	"context"

	"holt"
	"holt/internal/engine/cgroup"
)

// limits checks the control groups that limit computers.
func (h host) limits(_ context.Context, opt Options) holt.Finding {
	look := opt.Bounds
	if look == nil {
		look = cgroup.Look
	}
	found, err := look()
	if err != nil {
		e := holt.AsError(err)
		return warn(e.Message, e.Hint)
	}
	return ok(found)
}
