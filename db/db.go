// Package db is SQLite as Holt uses it: one writer, a pool of readers, and a
// guard around the SQL that users send.
package db
