package daemon

import (
	"context"
	"errors"
	"fmt"

	"holt"
	"holt/internal/access"
	"holt/internal/computer"
	"holt/internal/door/preview"
	"holt/internal/door/sshd"
	"holt/internal/event"
	"holt/internal/job"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/upload"
)

// controlFile is the control database's name in the data directory.
const controlFile = "holt.db"

// migrations bring the control database from version i to i+1. What was
// released is never changed: a change is a new migration at the end.
var migrations = []string{access.Schema + computer.Schema + workspaceSchema, quotaSchema, archiveSchema, forkSchema, packedSchema, lineageSchema,
	schedule.Schema, job.Schema, access.TenantSchema,
	workspaceTenantSchema + job.TenantSchema + access.ScopeSchema,
	sshd.Schema, preview.Schema + preview.GoneSchema,
	event.Schema, upload.Schema, // event's triggers go with a table that is made anew
	schedule.RoomSchema, job.CountSchema, job.BegunSchema, upload.SureSchema, preview.AddressSchema}

const workspaceSchema = `
CREATE TABLE workspace (
	id      TEXT PRIMARY KEY,
	name    TEXT NOT NULL UNIQUE,
	state   TEXT NOT NULL,              -- creating, ready or deleting
	created INTEGER NOT NULL,           -- nanoseconds since 1970
	files   INTEGER NOT NULL DEFAULT 0, -- files and bytes when it was last closed
	bytes   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE host_mount (
	dir       TEXT PRIMARY KEY,
	workspace TEXT NOT NULL,
	read_only INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE reserve (filler BLOB);
`

const forkSchema = `
ALTER TABLE workspace ADD COLUMN parent TEXT NOT NULL DEFAULT '';     -- workspace that it was forked from
ALTER TABLE workspace ADD COLUMN fork_point TEXT NOT NULL DEFAULT ''; -- checkpoint that both had then
`

// lineageSchema keeps the name of the workspace that one was forked from, for when it is deleted.
const lineageSchema = `
ALTER TABLE workspace ADD COLUMN parent_was TEXT NOT NULL DEFAULT '';
`

const quotaSchema = `
ALTER TABLE workspace ADD COLUMN max_bytes INTEGER NOT NULL DEFAULT 0; -- 0: no bound
ALTER TABLE workspace ADD COLUMN max_files INTEGER NOT NULL DEFAULT 0;
`

const packedSchema = `
ALTER TABLE workspace ADD COLUMN unpacked INTEGER NOT NULL DEFAULT 1; -- it may have segments to pack: it is open, was killed so, or was closed with some
`

// workspaceTenantSchema says whose workspaces are, and makes their names unique in each tenant: a computer's
// is its tenant's, and so are forks of it.
const workspaceTenantSchema = `
CREATE TABLE workspace_anew (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	state      TEXT NOT NULL,              -- creating, ready or deleting
	created    INTEGER NOT NULL,           -- nanoseconds since 1970
	files      INTEGER NOT NULL DEFAULT 0, -- files and bytes when it was last closed
	bytes      INTEGER NOT NULL DEFAULT 0,
	max_bytes  INTEGER NOT NULL DEFAULT 0, -- 0: no bound
	max_files  INTEGER NOT NULL DEFAULT 0,
	parent     TEXT NOT NULL DEFAULT '',   -- workspace that it was forked from
	fork_point TEXT NOT NULL DEFAULT '',   -- checkpoint that both had then
	unpacked   INTEGER NOT NULL DEFAULT 1, -- it may have segments to pack: it is open, was killed so, or was closed with some
	parent_was TEXT NOT NULL DEFAULT '',
	tenant     TEXT NOT NULL DEFAULT 'default'
) WITHOUT ROWID;
INSERT INTO workspace_anew (id, name, state, created, files, bytes, max_bytes, max_files, parent, fork_point, unpacked, parent_was, tenant)
	SELECT id, name, state, created, files, bytes, max_bytes, max_files, parent, fork_point, unpacked, parent_was,
		coalesce((SELECT tenant FROM computer WHERE computer.workspace = workspace.id),
			(SELECT json_extract(record, '$.tenant') FROM job WHERE job.workspace = workspace.id), 'default') FROM workspace;
DROP TABLE workspace;
ALTER TABLE workspace_anew RENAME TO workspace;
CREATE UNIQUE INDEX workspace_name ON workspace (tenant, name);
`

const (
	// reserveBytes is the room that the control database keeps for itself.
	reserveBytes = 6 << 20 // two of which the events that are kept may take
	// reservePages makes it checkpoint its log well before that is used up.
	reservePages = 256
)

// openControl opens the control database and makes room in it, so that runs
// and deletes can still be recorded when the host's disk is full: SQLite uses
// free pages and the space of its log again before it asks for more.
func openControl(ctx context.Context, path string) (*db.DB, error) {
	d, err := db.Open(path, migrations)
	if err != nil {
		return nil, fmt.Errorf("open control database: %w", err)
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Query(fmt.Sprintf(`PRAGMA wal_autocheckpoint = %d`, reservePages), nil, func(*db.Row) error { return nil }); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO reserve VALUES (zeroblob(?))`, reserveBytes)
	})
	full := outOfSpace(err) // then what was reserved earlier has to do
	if err == nil {
		err = d.Write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM reserve`) })
	}
	if err != nil && !full {
		return nil, errors.Join(fmt.Errorf("make room in control database: %w", err), d.Close())
	}
	return d, nil
}

// outOfSpace tells whether an error says that the host's disk is full.
func outOfSpace(err error) bool { return holt.CodeOf(described(err)) == holt.OutOfSpace }
