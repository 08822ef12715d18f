package job

import (
	"errors"

	"holt"
)

// atLimit is why a job's computer could not be made: its tenant has as much as it may, or the host has no memory for it.
// The job waits for as long as that is so.
type atLimit struct{ error }

func (atLimit) Is(target error) bool { return target == errNoRoom }

// limitReached says whether an error is of a tenant's limit, or of the host's memory, and whether nobody's end makes room.
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
