package computer

import "holt/internal/idempotency"

// Schema makes the tables of this package in the control database, and that of
// package idempotency. Times are nanoseconds since 1970; 0 means never.
const Schema = idempotency.Schema + computerSchema + diskSchema + snapshotSchema + runSchema + terminalSchema + networkSchema + limitSchema

const computerSchema = `
CREATE TABLE computer (
	id              TEXT PRIMARY KEY,
	tenant          TEXT NOT NULL DEFAULT 'default',
	name            TEXT NOT NULL,                   -- unique in its tenant
	template        TEXT NOT NULL,
	image           TEXT NOT NULL,                   -- digest of the image at the bottom of its disk chain; '' without a root disk
	state           TEXT NOT NULL,
	reason          TEXT NOT NULL DEFAULT '',
	engine          TEXT NOT NULL,
	cpus            INTEGER NOT NULL,
	memory_mb       INTEGER NOT NULL,
	disk_mb         INTEGER NOT NULL,
	wish_cpus       INTEGER NOT NULL DEFAULT 0,      -- requested, and not in effect yet; 0: no change
	wish_memory_mb  INTEGER NOT NULL DEFAULT 0,      -- likewise
	growing         INTEGER NOT NULL DEFAULT 0,      -- a live resize is not finished: the machine or the guest has still to be changed
	workspace       TEXT NOT NULL UNIQUE,            -- id
	workspace_name  TEXT NOT NULL,
	workspace_mb    INTEGER NOT NULL DEFAULT 0,      -- size of a workspace that was made with the computer, MiB; 0: not limited
	owned           INTEGER NOT NULL,                -- the workspace was made with the computer and is deleted with it
	disk            TEXT NOT NULL DEFAULT '',        -- the root disk that it writes to; '' without one
	snapshot        TEXT NOT NULL DEFAULT '',        -- its last snapshot, or the one that it was forked from
	parent          TEXT NOT NULL DEFAULT '',        -- the computer that it was forked from
	parent_was      TEXT NOT NULL DEFAULT '',        -- the parent's name, once the parent is deleted
	parent_snapshot TEXT NOT NULL DEFAULT '',        -- the snapshot that it was forked from
	lineage         TEXT NOT NULL DEFAULT '',        -- ids of all ancestors, also deleted ones; a space before each
	call            TEXT NOT NULL DEFAULT '',        -- idempotency key of the call that forked it
	job             TEXT NOT NULL DEFAULT '',        -- id of the job that it runs
	created         INTEGER NOT NULL,
	started         INTEGER NOT NULL DEFAULT 0,
	boot_ms         INTEGER NOT NULL DEFAULT 0,
	ungreeted       INTEGER NOT NULL DEFAULT 0,      -- its guest was resumed from a snapshot and has not got its identity yet
	back_to         INTEGER NOT NULL DEFAULT 0,      -- when the snapshot was taken that it was restored to, until its runs are compared with the guest's
	idle_ms         INTEGER NOT NULL DEFAULT 900000, -- idle timeout, milliseconds; negative: never
	used            INTEGER NOT NULL DEFAULT 0,      -- last use, to a minute; 0: unknown
	paused_by       TEXT NOT NULL DEFAULT '',        -- who paused it last, or is pausing it
	woken_by        TEXT NOT NULL DEFAULT '',
	woken           INTEGER NOT NULL DEFAULT 0,
	wake_ms         INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX computer_name ON computer (tenant, name);
CREATE INDEX computer_job ON computer (job) WHERE job <> '';
CREATE TABLE identity ( -- what must differ between guests
	value    TEXT PRIMARY KEY, -- hexadecimal random bytes that the guest drew after its last reseed, or the fingerprint of an SSH host key
	computer TEXT NOT NULL,
	drawn    INTEGER NOT NULL  -- it is random bytes
) WITHOUT ROWID;
CREATE INDEX identity_computer ON identity (computer, drawn);
CREATE TABLE hold (
	id       TEXT PRIMARY KEY,
	computer TEXT NOT NULL,
	reason   TEXT NOT NULL,
	by_whom  TEXT NOT NULL,
	created  INTEGER NOT NULL,
	expires  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX hold_computer ON hold (computer, expires);
`

// A root disk is an overlay. Once another disk lies over it, it is frozen, and
// it may be needed for longer than the computer that it was made for.
const diskSchema = `
CREATE TABLE disk (
	id      TEXT PRIMARY KEY,
	parent  TEXT NOT NULL,              -- the disk beneath; '': the image
	image   TEXT NOT NULL,              -- digest of the image at the bottom of the chain
	engine  TEXT NOT NULL,              -- the family of engines whose format it has: that of its computer, which may be deleted
	created INTEGER NOT NULL,
	space   TEXT NOT NULL,              -- its name in the archive: a new one whenever its file changes
	merging INTEGER NOT NULL DEFAULT 0  -- a merge is not finished: the file's own header says what lies beneath it
) WITHOUT ROWID;
CREATE INDEX disk_parent ON disk (parent);
CREATE TABLE disk_left (space TEXT PRIMARY KEY) WITHOUT ROWID; -- names in the archive that only outdated snapshots need
`

// A snapshot's id is also the name of a checkpoint of the computer's workspace.
const snapshotSchema = `
CREATE TABLE snapshot (
	id        TEXT PRIMARY KEY,
	name      TEXT NOT NULL,                -- '' or unique for the computer
	computer  TEXT NOT NULL,
	kind      TEXT NOT NULL,                -- snapshot, fork or pause
	parent    TEXT NOT NULL,                -- the snapshot before; ''
	state     TEXT NOT NULL,                -- creating, ready or deleting
	stopped   INTEGER NOT NULL DEFAULT 0,   -- its computer was stopped: it has no memory
	workspace TEXT NOT NULL DEFAULT '',     -- that has its checkpoint: the computer's, or one that a restore replaced
	disk      TEXT NOT NULL,                -- frozen with it; '' without a root disk
	next      TEXT NOT NULL,                -- the overlay of disk that the machine writes to after the snapshot or a resume; '' unless one is in progress
	cpus      INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	disk_mb   INTEGER NOT NULL DEFAULT 0,
	report    TEXT NOT NULL DEFAULT '{}',   -- JSON of machine.SnapshotReport
	created   INTEGER NOT NULL,
	used      INTEGER NOT NULL DEFAULT 0,   -- when a machine last resumed from it; 0: never
	stored    INTEGER NOT NULL DEFAULT 0,   -- the archive has all of it
	outdated  INTEGER NOT NULL DEFAULT 0,   -- disks beneath it were merged since it was stored
	grown     INTEGER NOT NULL DEFAULT 0    -- bytes by which storing it made the archive's packs grow
) WITHOUT ROWID;
CREATE UNIQUE INDEX snapshot_name ON snapshot (computer, name) WHERE name <> '';
CREATE INDEX snapshot_computer ON snapshot (computer, created);
CREATE INDEX snapshot_workspace ON snapshot (workspace);
CREATE TABLE restore ( -- restores in progress
	computer  TEXT PRIMARY KEY,
	snapshot  TEXT NOT NULL,            -- the one to restore
	present   TEXT NOT NULL,            -- the snapshot of the state before the restore
	workspace TEXT NOT NULL,            -- that becomes the computer's
	disk      TEXT NOT NULL,            -- that becomes the computer's; '' without root disks
	before    TEXT NOT NULL DEFAULT '', -- the computer's disk before the swap
	ran       INTEGER NOT NULL,         -- the computer was running
	call      TEXT NOT NULL             -- idempotency key of the call
) WITHOUT ROWID;
`

const runSchema = `
CREATE TABLE run (
	seq        INTEGER PRIMARY KEY,        -- order of starting
	id         TEXT NOT NULL UNIQUE,
	computer   TEXT NOT NULL,
	spec       TEXT NOT NULL,              -- JSON of holt.RunSpec, without env
	schedule   TEXT NOT NULL DEFAULT '',   -- name of the schedule that started it
	state      TEXT NOT NULL,
	exit_code  INTEGER NOT NULL DEFAULT 0,
	signal     TEXT NOT NULL DEFAULT '',
	timed_out  INTEGER NOT NULL DEFAULT 0,
	background INTEGER NOT NULL DEFAULT 0, -- processes that outlived it
	started    INTEGER NOT NULL,
	ended      INTEGER NOT NULL DEFAULT 0,
	reason     TEXT NOT NULL DEFAULT '',   -- what happened to the machine that ended it
	memory     TEXT NOT NULL DEFAULT '',   -- JSON of holt.OutOfMemory; ''
	output     INTEGER NOT NULL DEFAULT 0, -- size on disk of its output file, bytes; 0: no file
	written    INTEGER                     -- bytes that it wrote; NULL: its output was not collected since its end
);
CREATE INDEX run_computer ON run (computer, seq);
CREATE INDEX run_running ON run (computer) WHERE state = 'running';
CREATE INDEX run_ended ON run (computer, background > 0, ended) WHERE state <> 'running';
CREATE INDEX run_output ON run (computer, output) WHERE output > 0;
`

// A terminal's id is unique in its computer: a fork has the terminals of its parent.
const terminalSchema = `
CREATE TABLE terminal (
	seq       INTEGER PRIMARY KEY,      -- order of starting
	computer  TEXT NOT NULL,
	id        TEXT NOT NULL,
	name      TEXT NOT NULL,
	spec      TEXT NOT NULL,            -- JSON of holt.TerminalSpec, without env
	state     TEXT NOT NULL,
	exit_code INTEGER NOT NULL DEFAULT 0,
	signal    TEXT NOT NULL DEFAULT '',
	rows      INTEGER NOT NULL,
	cols      INTEGER NOT NULL,
	started   INTEGER NOT NULL,
	ended     INTEGER NOT NULL DEFAULT 0,
	UNIQUE (computer, id)
);
`

// Host secrets are stored as they are: only the owner can read the control
// database (0600). A computer's CA is made with its first secret; its forks have the same.
const networkSchema = `
CREATE TABLE network (
	computer TEXT PRIMARY KEY, -- one without a row has the default policy
	policy   TEXT NOT NULL     -- JSON of holt.NetworkPolicy
) WITHOUT ROWID;
CREATE TABLE secret (
	computer    TEXT NOT NULL,
	name        TEXT NOT NULL,
	host        TEXT NOT NULL,
	header      TEXT NOT NULL,
	placeholder TEXT NOT NULL,
	plain       INTEGER NOT NULL,
	value       TEXT NOT NULL,
	at          INTEGER NOT NULL,
	PRIMARY KEY (computer, name)
) WITHOUT ROWID;
CREATE TABLE authority (
	computer    TEXT PRIMARY KEY,
	certificate TEXT NOT NULL,    -- PEM
	key         TEXT NOT NULL     -- PEM
) WITHOUT ROWID;
`

// A budget and the meters that it was counted by are written in one
// transaction, so that nothing is counted twice.
const limitSchema = `
CREATE TABLE tenant_limit ( -- 0: no limit
	tenant    TEXT PRIMARY KEY,
	computers INTEGER NOT NULL,
	running   INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	disk_mb   INTEGER NOT NULL,
	run_ms    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE budget (
	computer TEXT PRIMARY KEY,           -- it counts this computer and all its forks
	name     TEXT NOT NULL,              -- of the computer, when the budget was set
	cpu_ms   INTEGER NOT NULL,           -- limits; 0: none
	run_ms   INTEGER NOT NULL,
	network  INTEGER NOT NULL,           -- bytes
	cpu      INTEGER NOT NULL DEFAULT 0, -- used, nanoseconds
	run      INTEGER NOT NULL DEFAULT 0, -- used, nanoseconds
	sent     INTEGER NOT NULL DEFAULT 0, -- used, bytes in both directions
	warned   INTEGER NOT NULL DEFAULT 0, -- the warning that it is nearly used up was logged
	created  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE meter ( -- up to where a computer's machine has been counted
	computer TEXT PRIMARY KEY,
	process  TEXT NOT NULL,    -- of the machine
	cpu      INTEGER NOT NULL, -- nanoseconds
	age      INTEGER NOT NULL, -- nanoseconds
	network  INTEGER NOT NULL  -- bytes since the computer was created
) WITHOUT ROWID;
`
