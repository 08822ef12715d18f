// Package journal is an append-only log in segments.
package journal
