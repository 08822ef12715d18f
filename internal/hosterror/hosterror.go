// Package hosterror gives an error of the host's file system, or of a database
// on it, the [holt.Code] that tells a caller what to do.
//
// It does not know errors of guests: EACCES from a guest's file system says
// nothing about the host.
package hosterror

import (
	"errors"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// Full gives an error the code OutOfSpace if the host's disk is full. An error
// that has a code keeps it.
func Full(err error) error {
	if err == nil || holt.CodeOf(err) != holt.Internal {
		return err
	}
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || db.IsFull(err)
	if !full {
		return err
	}
	return holt.Errorf(holt.OutOfSpace, "%w", err).
		WithHint("free space on the disk that holds the data directory; holt computer delete and holt workspace delete free some")
}

// Describe is Full, and gives an error the code Forbidden if this process may
// not use a file. It is for errors of the host alone.
func Describe(err error) error {
	err = Full(err)
	if holt.CodeOf(err) == holt.Internal && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS)) {
		return holt.Errorf(holt.Forbidden, "%w", err).WithHint("run holt as a user who may write there, or choose another directory with --data-dir")
	}
	return err
}

// IsFull reports whether an error says that the host's disk is full.
func IsFull(err error) bool { return holt.CodeOf(Full(err)) == holt.OutOfSpace }
