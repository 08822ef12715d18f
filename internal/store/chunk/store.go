package chunk

import (
	"context"
	"io"
	"regexp"

	"holt"
)

// Store stores immutable named objects: the packs and manifests of one archive.
// Package chunktest is the conformance suite. Methods are safe for concurrent
// use and return soon after their context ends.
//
// Errors have codes: NotFound and AlreadyExists as below, Unavailable or
// Timeout if the store does not answer, OutOfSpace if it is full.
type Store interface {
	// Put stores b atomically and durably: when it returns nil the object survives
	// power loss. It returns AlreadyExists, and changes nothing, if an object of
	// that name exists. After any other error the object may or may not be stored.
	Put(ctx context.Context, name string, b []byte) error
	// Get fills p from offset off of an object. The error wraps io.ErrUnexpectedEOF
	// if the object is too short; it is NotFound if there is no such object.
	Get(ctx context.Context, name string, p []byte, off int64) error
	// Stat returns the size of an object in bytes, or NotFound.
	Stat(ctx context.Context, name string) (int64, error)
	// List calls fn for the objects whose names begin with prefix, in the order of
	// names, until fn fails. Objects put or deleted meanwhile may or may not be
	// listed.
	List(ctx context.Context, prefix string, fn func(Object) error) error
	// Delete removes an object. A missing object is no error.
	Delete(ctx context.Context, name string) error
}

// Object is one listed object.
type Object struct {
	Name string
	Size int64 // bytes
}

// Names are up to four parts with slashes between, like pack/0a/0a1b….
var nameFormat = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}(/[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}){0,3}$`)

// CheckName returns InvalidArgument for names that a store need not accept.
func CheckName(name string) error {
	if !nameFormat.MatchString(name) {
		return holt.Errorf(holt.InvalidArgument, "invalid object name %q", name).
			WithHint("use up to four parts of letters, digits and ._- separated by slashes")
	}
	return nil
}

func errNoObject(name string) error {
	return holt.Errorf(holt.NotFound, "there is no object %s", name)
}

func errObjectExists(name string) error {
	return holt.Errorf(holt.AlreadyExists, "object %s exists", name)
}

func errShortObject(name string, off, size int64) error {
	return holt.Errorf(holt.Corrupt, "object %s has %d bytes, need %d: %w", name, size, off, io.ErrUnexpectedEOF)
}

// inRange checks the range of a Get against the size of the object.
func inRange(name string, p []byte, off, size int64) error {
	if off < 0 {
		return holt.Errorf(holt.InvalidArgument, "read %s: invalid offset %d", name, off)
	}
	if int64(len(p)) > size-off {
		return errShortObject(name, off+int64(len(p)), size)
	}
	return nil
}
