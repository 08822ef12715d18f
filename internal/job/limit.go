package job

import (
	"errors"

	"holt"
)

// atLimit is the error of a computer that would exceed a limit of the tenant or the memory of the host. The job waits
// until it does not.
type atLimit struct{ error }

func (atLimit) Is(target error) bool { return target == errNoRoom }

// limitReached reports whether an error is that of a tenant's limit or of the host's memory, and whether the job
// exceeds it even if nothing else runs.
func limitReached(err error) (ok, forever bool) {
	if full, ok := holt.LacksMemory(err); ok {
		return true, full.MostMB < full.AskedMB
	}
	var e *holt.Error
	if !errors.As(err, &e) {
		return false, false
	}
	full, ok := e.Detail.(holt.LimitReached)
	return ok, full.Asked > full.Max
}
