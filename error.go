package holt

import (
	"errors"
	"fmt"
)

// Code says what kind of failure an [Error] is. Codes never change meaning;
// each door has one table from codes to its own numbers (HTTP status, errno,
// exit code).
type Code string

// The codes. docs/words.md lists them with their HTTP status and exit code.
const (
	InvalidArgument Code = "invalid_argument" // the request cannot be right, whatever the state
	NotFound        Code = "not_found"        // no such thing, or not yours
	AlreadyExists   Code = "already_exists"   // the name is taken
	Conflict        Code = "conflict"         // the state does not allow it now
	Unauthenticated Code = "unauthenticated"  // no valid token
	Forbidden       Code = "forbidden"        // the token does not cover it
	OutOfSpace      Code = "out_of_space"     // a disk or a quota is full
	TooMany         Code = "too_many"         // a limit is reached; try later or ask for less
	Unsupported     Code = "unsupported"      // this host or engine cannot do it
	Unavailable     Code = "unavailable"      // a part that is needed does not answer
	Timeout         Code = "timeout"          // it took longer than allowed
	Corrupt         Code = "corrupt"          // stored bytes are not what was written
	Internal        Code = "internal"         // a defect in holt
)

// Error is the only error type that crosses a door: a code for programs, a
// sentence for people, and a hint that says what to do about it.
type Error struct {
	Code    Code   `json:"code" doc:"kind of failure; never changes meaning"`
	Message string `json:"message" doc:"one sentence for a person"`
	Hint    string `json:"hint,omitempty" doc:"what to do about it"`
	Detail  any    `json:"detail,omitempty" doc:"structured facts, by code"`

	cause error
}

// Errorf returns an Error with the given code and sentence. The operands of %w
// are kept as its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		cause = errors.Join(several.Unwrap()...)
	}
	return &Error{Code: code, Message: err.Error(), cause: cause}
}

// WithHint returns e with its hint set.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the outermost [Error] in err's chain, Internal
// for any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// AsError returns err as an [Error] for a door: the outermost one in its
// chain, with the whole chain's text as its message, or one with code Internal.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Code: Internal, Message: err.Error(), cause: err}
	}
	return &Error{Code: e.Code, Message: err.Error(), Hint: e.Hint, Detail: e.Detail, cause: err}
}
