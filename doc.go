// Package holt defines the types that all other packages share: identifiers,
// states, the structs of the API, and the [Error] type.
//
// It has almost no behaviour and imports only the standard library, so that
// the command line and the guest agent stay small. Define a noun here and in
// docs/words.md before you implement it.
package holt
