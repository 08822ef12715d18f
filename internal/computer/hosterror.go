package computer

import (
	"errors"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// HostError gives an error of the host's file system, or of a database on it,
// the code OutOfSpace if that is what it is. Errors that have a code keep it.
func HostError(err error) error {
	if err == nil || holt.CodeOf(err) != holt.Internal {
		return err
	}
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || db.IsFull(err)
	if !full {
		return err
	}
	return holt.Errorf(holt.OutOfSpace, "%w", err).
		WithHint("make room on the disk that holds the data directory; holt computer delete and holt workspace delete free some")
}
