// Package holt holds the words that every other package speaks: identifiers,
// states, the structs that travel over the API, and the one [Error] type.
//
// It is not a place for behaviour. It imports only the standard library, so
// that the command line and the guest agent can link it at no cost. A noun is
// defined here and in docs/words.md before it is coded anywhere else.
package holt
