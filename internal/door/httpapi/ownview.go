package httpapi

import (
	"errors"
	"regexp"
	"slices"

	"holt"
)

// fromHost is an error of what is behind the API, which speaks to the computer's owner: of the host's disks, of
// other computers.
type fromHost struct{ error }

func (f fromHost) Unwrap() error { return f.error }

// ownBound is why a computer may not do something to itself, which it is told as it is.
type ownBound struct{ error }

func (b ownBound) Unwrap() error { return b.error }

// told marks what may be wrong as the host's to know.
func told[T any](v T, err error) (T, error) {
	if err != nil {
		err = fromHost{err}
	}
	return v, err
}

// view returns what makes of an answer what a computer is told.
func view[T, V any](of func(T) V) func(T, error) (any, error) {
	return func(v T, err error) (any, error) {
		if err != nil {
			return nil, fromHost{err}
		}
		return of(v), nil
	}
}

// hostSentences are said to a computer in place of what its host knows.
var hostSentences = map[holt.Code]string{
	holt.OutOfSpace:  "there is no room for it on the host",
	holt.TooMany:     "a limit of this computer's owner, or of its host, is reached",
	holt.Unavailable: "holt cannot do it now",
	holt.Timeout:     "it took longer than allowed",
	holt.Corrupt:     "what is stored of it cannot be read",
	holt.Internal:    "internal error",
}

var hostPath = regexp.MustCompile(`(^|[\s"'(=\[])/[^\s"',;:)\]]*`)

// forComputer is an error as a computer is told of it: without paths of the host, and without details.
func forComputer(err error, e *holt.Error) *holt.Error {
	if !errors.As(err, new(fromHost)) || errors.As(err, new(ownBound)) {
		return e
	}
	out := &holt.Error{Code: e.Code, Message: hostSentences[e.Code]}
	if out.Message == "" {
		out.Message = withoutPaths(e.Message)
	}
	if e.Code != holt.Internal {
		return out
	}
	return out.WithHint("%s", withoutPaths(e.Hint)) // which request it was
}

func withoutPaths(s string) string { return hostPath.ReplaceAllString(s, "$1…") }

// viewForks has nothing in it that a computer is not told of the forks that it asked for.
func viewForks(all holt.ForkedComputers) holt.ForkedComputers {
	all.Computers = slices.Clone(all.Computers)
	for i, one := range all.Computers {
		if one.Error != nil {
			all.Computers[i].Error = forComputer(fromHost{one.Error}, one.Error)
		}
	}
	return all
}

// viewSnapshot is a snapshot without the computers that others made of it.
func viewSnapshot(m holt.Snapshot) holt.Snapshot {
	m.Forks = nil
	return m
}

func viewSnapshots(all []holt.Snapshot) []holt.Snapshot {
	out := make([]holt.Snapshot, 0, len(all))
	for _, one := range all {
		out = append(out, viewSnapshot(one))
	}
	return out
}
