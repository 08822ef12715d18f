package machine

import (
	"errors"

	"holt"
)

// ErrGone is in the chain of every error that says that a machine is not
// running. Its holt code is Unavailable.
var ErrGone = errors.New("the machine is not running")

// Gone returns the error that says that no machine runs in dir.
func Gone(dir string) *holt.Error {
	return holt.Errorf(holt.Unavailable, "machine in %s: %w", dir, ErrGone)
}

// Busy returns the error that says that a machine runs in dir already.
func Busy(dir string) *holt.Error {
	return holt.Errorf(holt.Conflict, "a machine is already running in %s", dir).
		WithHint("adopt it or end it first")
}
