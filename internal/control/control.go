// Package control has the tables of the control database, and the nouns that need nothing else.
//
// It does not open the database: the daemon and the tests of the doors do.
//
// # Format
//
// Each package that keeps rows has the text of its tables (Schema). [Schema] is all of them, in order.
package control

import (
	"holt/internal/access"
	"holt/internal/archive"
	"holt/internal/artifact"
	"holt/internal/computer"
	"holt/internal/door/preview"
	"holt/internal/door/sshd"
	"holt/internal/event"
	"holt/internal/idempotency"
	"holt/internal/job"
	"holt/internal/nouns"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/upload"
	"holt/internal/workspaces"
)

// Schema makes all tables. The triggers of package event need the tables before it.
var Schema = access.Schema + access.S3Schema + computer.Schema + workspaces.Schema + archive.Schema + reserveSchema + schedule.Schema + job.Schema +
	sshd.Schema + preview.Schema + upload.Schema + artifact.Schema + event.Schema

// reserveSchema makes the table that reserves room in the database; package daemon fills and empties it.
const reserveSchema = `
CREATE TABLE reserve (filler BLOB);
`

// Fill adds the nouns of a database with [Schema] to set. t are its tokens, which the doors use too.
func Fill(set *nouns.Set, d *db.DB, keys *idempotency.Keys, t *access.Tokens) {
	set.Tokens = tokens{t, keys}
}
