package holt

import (
	"bytes"
	"encoding/json"
)

// ExitStatus is the one table from codes to exit statuses, of the command line and of the command in computers. They
// never change meaning; docs/words.md shows them.
func ExitStatus(code Code) int {
	switch code {
	case "":
		return 0
	case InvalidArgument:
		return 2
	case NotFound:
		return 3
	case AlreadyExists, Conflict:
		return 4
	case Unavailable, Timeout, TooMany:
		return 5
	case OutOfSpace:
		return 6
	case Unauthenticated, Forbidden:
		return 7
	case Unsupported:
		return 8
	case Corrupt, Internal:
	}
	return 1
}

// shownExit is how an exit status is written in JSON: null as long as there is none. It leaves out no status but a 0
// that says nothing, so what is read again is the same.
func shownExit(code int, ended bool) *int {
	if !ended && code == 0 {
		return nil
	}
	return &code
}

// asJSON is json.Marshal without its escapes for HTML: whether there are any is up to who writes what this is a part of.
func asJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
