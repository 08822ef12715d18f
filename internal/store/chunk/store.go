package chunk

import (
	"context"
	"io"
	"regexp"

	"holt"
)

// Store keeps immutable named objects: the packs and manifests of one archive,
// whether in memory, in a directory or far away. Package chunktest says by
// tests what an implementation must do. Its methods may be called from any
// number of goroutines and return soon after their context ends.
//
// Errors have codes: NotFound and AlreadyExists as below, Unavailable or
// Timeout if the store cannot be asked, OutOfSpace if it is full.
type Store interface {
	// Put stores b as a whole and durably, or not at all: when it returns nil
	// the object survives power loss. AlreadyExists if there is one with that
	// name, which stays as it is. A Put that failed otherwise may have happened.
	Put(ctx context.Context, name string, b []byte) error
	// Get fills p from offset off of an object. An error that wraps
	// io.ErrUnexpectedEOF if the object ends before; NotFound if there is none.
	Get(ctx context.Context, name string, p []byte, off int64) error
	// Stat returns the size of an object, bytes; NotFound if there is none.
	Stat(ctx context.Context, name string) (int64, error)
	// List calls fn for the objects whose names begin with prefix, in the
	// order of their names, until fn fails. What is put or deleted meanwhile
	// may or may not be seen.
	List(ctx context.Context, prefix string, fn func(Object) error) error
	// Delete removes an object; there being none is no error.
	Delete(ctx context.Context, name string) error
}

// Object is one listed object.
type Object struct {
	Name string
	Size int64 // bytes
}

// Names are up to four parts with slashes between, like pack/0a/0a1b….
var nameFormat = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}(/[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}){0,3}$`)

// CheckName refuses names that a store need not take: InvalidArgument.
func CheckName(name string) error {
	if !nameFormat.MatchString(name) {
		return holt.Errorf(holt.InvalidArgument, "%q cannot name an object", name).
			WithHint("up to four parts of letters, digits and ._- with slashes between")
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
	return holt.Errorf(holt.Corrupt, "object %s ends at %d, before %d: %w", name, size, off, io.ErrUnexpectedEOF)
}

// inRange checks the range of a Get against the size of the object.
func inRange(name string, p []byte, off, size int64) error {
	if off < 0 {
		return holt.Errorf(holt.InvalidArgument, "read %s at %d", name, off)
	}
	if int64(len(p)) > size-off {
		return errShortObject(name, off+int64(len(p)), size)
	}
	return nil
}
