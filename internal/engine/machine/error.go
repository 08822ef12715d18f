package machine

import (
	"errors"

	"holt"
)

// ErrGone is wrapped by every error for a machine that is not running. Its holt
// code is Unavailable.
var ErrGone = errors.New("the machine is not running")

// Gone returns the error for a directory without a running machine.
func Gone(dir string) *holt.Error {
	return holt.Errorf(holt.Unavailable, "machine in %s: %w", dir, ErrGone)
}

// Busy returns the error for a directory with a running machine.
func Busy(dir string) *holt.Error {
	return holt.Errorf(holt.Conflict, "a machine is already running in %s", dir).
		WithHint("adopt it or end it first")
}
