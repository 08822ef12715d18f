package job

import (
	"errors"

	"holt"
)

// atLimit is why a job's computer could not be made: its tenant has as much as it may. The job waits for as long
// as that is so.
type atLimit struct{ error }

func (atLimit) Is(target error) bool { return target == errNoRoom }

// limitReached says whether an error is of a tenant's limit, and which.
func limitReached(err error) (full holt.LimitReached, ok bool) {
	var e *holt.Error
	if errors.As(err, &e) {
		full, ok = e.Detail.(holt.LimitReached)
	}
	return full, ok
}
