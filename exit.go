package holt

import (
	"bytes"
	"encoding/json"
)

// ExitStatus maps codes to exit statuses, for the command line and the command in computers. They never change
// meaning; docs/words.md lists them.
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

// shownExit returns an exit status for JSON: null until the command has ended. A status other than 0 is always written,
// so that decoding restores the value.
func shownExit(code int, ended bool) *int {
	if !ended && code == 0 {
		return nil
	}
	return &code
}

// asJSON is json.Marshal without HTML escaping, which the encoder of the enclosing value decides on.
func asJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
