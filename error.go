package holt

import (
	"errors"
	"fmt"
)

// Code is the kind of an [Error]. Codes never change meaning. Each protocol has
// one table from codes to its own numbers (HTTP status, errno, exit code).
type Code string

// The codes. docs/words.md lists them with their HTTP status and exit code.
const (
	InvalidArgument Code = "invalid_argument" // the request is invalid, whatever the state
	NotFound        Code = "not_found"        // the object does not exist, or is not visible to the caller
	AlreadyExists   Code = "already_exists"   // the name is in use
	Conflict        Code = "conflict"         // the current state does not allow it
	Unauthenticated Code = "unauthenticated"  // no valid token
	Forbidden       Code = "forbidden"        // the token does not allow it
	OutOfSpace      Code = "out_of_space"     // a disk or a quota is full
	TooMany         Code = "too_many"         // a limit is reached; try again later or ask for less
	Unsupported     Code = "unsupported"      // this host or engine does not support it
	Unavailable     Code = "unavailable"      // a required part does not answer
	Timeout         Code = "timeout"          // it took longer than allowed
	Corrupt         Code = "corrupt"          // stored data is damaged
	Internal        Code = "internal"         // a bug in holt
)

// Error is the error type of all public interfaces: a code for programs, a
// message for people, and a hint that says what to do.
type Error struct {
	Code    Code   `json:"code" doc:"kind of error; codes never change meaning"`
	Message string `json:"message" doc:"what happened, in one sentence"`
	Hint    string `json:"hint,omitempty" doc:"what to do"`
	Detail  any    `json:"detail,omitempty" doc:"structured details, depending on the code"`

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

// AsError returns the outermost [Error] in err's chain, with the text of the
// whole chain as its message, or an Error with code Internal.
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
