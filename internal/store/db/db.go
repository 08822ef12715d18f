// Package db wraps SQLite: one writer, a pool of readers, one schema, and
// restricted execution of users' SQL (see [Source]).
//
// Long reads share a few connections and wait for each other ([DB.Read]).
// Callers that hold a lock read without waiting ([DB.ReadNow]).
//
// It is not an abstraction over databases: callers write SQL and step
// statements. It is the only package that imports the driver.
//
// Databases use WAL mode with synchronous=NORMAL. A commit survives the death of
// the process at once, and power loss after the next checkpoint or
// [DB.WriteSync]. A power loss always removes a suffix of the commits.
//
// Known traps: a [Conn] belongs to one goroutine at a time. Never open a database
// file directly: closing any descriptor of it drops SQLite's locks. (A DB has one
// descriptor of its own and closes it last.) Statements from Prepare are cached
// by their text: Reset them, or step them to the end, before the next use.
package db

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"holt"
)

// Conn is a connection, Stmt a prepared statement of it.
type (
	Conn = sqlite.Conn
	Stmt = sqlite.Stmt
)

// DB is an open database.
type DB struct {
	path    string
	file    *os.File // for Clone and Sync; closed after all connections, since closing drops their locks
	readers *sqlitex.Pool
	spares  spares

	mu      sync.Mutex // held by the write transaction
	writer  *Conn
	commits int // since it was opened; the first synced ones survive power loss
	synced  int
	told    func() // see OnCommit
}

var errClosed = errors.New("database is closed")

// busy is the timeout for another process's lock.
const busy = 10 * time.Second

// ErrSchema is returned for a database that was created with another schema, which is left unchanged.
var ErrSchema = holt.Errorf(holt.Unsupported, "the database was created by another version of holt").
	WithHint("use that version of holt, or another data directory; nothing was changed")

// Open opens or creates the database at path. tables creates its tables; the version of the database is computed from that
// text, and a database with other tables is left unchanged: [ErrSchema]. views creates what is derived from the rows:
// indexes, views and statistics. If views has changed they are recreated in one transaction, which reads all rows.
func Open(path, tables, views string) (*DB, error) {
	// SQLite creates a database with the mode of the umask, and its WAL and shared
	// memory with the mode of the database. Create it with access for the owner
	// only.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		err = f.Close() // a new file has no locks to lose
	case errors.Is(err, fs.ErrExist):
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	w, err := connect(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	d := &DB{path: path, writer: w}
	if d.file, err = os.Open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), w.Close())
	}
	for _, sql := range []string{"PRAGMA synchronous = NORMAL", "PRAGMA wal_autocheckpoint = 4000", "PRAGMA journal_size_limit = 67108864"} {
		if err := sqlitex.ExecuteTransient(w, sql, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), w.Close(), d.file.Close())
		}
	}
	if err := prepare(w, tables, views); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), w.Close(), d.file.Close())
	}
	d.readers, err = sqlitex.NewPool(path, sqlitex.PoolOptions{
		Flags: sqlite.OpenReadOnly, PoolSize: Readers,
		PrepareConn: func(c *Conn) error { c.SetBusyTimeout(busy); return nil },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), w.Close(), d.file.Close())
	}
	return d, nil
}

// prepare creates the tables and views of a new database, checks those of an old one, and recreates its views if they have changed.
func prepare(w *Conn, tables, views string) error {
	number := int(crc32.ChecksumIEEE([]byte(tables))>>2) + 1<<29
	shown := int(int32(crc32.ChecksumIEEE([]byte(views))))
	version, err := sqlitex.ResultInt(w.Prep("PRAGMA user_version"))
	if err != nil {
		return err
	}
	script := tables
	if version != 0 {
		if version != number {
			return ErrSchema
		}
		if id, err := sqlitex.ResultInt(w.Prep("PRAGMA application_id")); err != nil || id == shown {
			return err
		}
		if script, err = dropViews(w); err != nil {
			return err
		}
	}
	return sqlitex.ExecuteScript(w, fmt.Sprintf("%s; %s; PRAGMA user_version = %d; PRAGMA application_id = %d;", script, views, number, shown), nil)
}

// dropViews returns SQL that drops everything derived from the rows.
func dropViews(w *Conn) (script string, err error) {
	err = sqlitex.Execute(w, `SELECT 'DROP ' || type || ' "' || replace(name, '"', '""') || '";' FROM sqlite_schema
		WHERE type IN ('index', 'view', 'trigger') AND sql IS NOT NULL OR name = 'sqlite_stat1'`,
		&sqlitex.ExecOptions{ResultFunc: func(s *Stmt) error { script += s.ColumnText(0) + "\n"; return nil }})
	return script, err
}

// ReadFile runs fn in one read transaction on a database that this process does not have open.
func ReadFile(path string, fn func(*Tx) error) (err error) {
	c, err := connect(path, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer c.Close()
	defer sqlitex.Transaction(c)(&err)
	return fn(&Tx{c})
}

// connect opens one connection.
func connect(path string, flags sqlite.OpenFlags) (*Conn, error) {
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	c.SetBusyTimeout(busy)
	if flags&sqlite.OpenReadWrite != 0 {
		err = sqlitex.ExecuteTransient(c, "PRAGMA journal_mode = WAL", nil)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return c, nil
}

// IsCorrupt reports whether err says that a file is not a database or is damaged.
func IsCorrupt(err error) bool {
	code := sqlite.ErrCode(err).ToPrimary()
	return err != nil && (code == sqlite.ResultCorrupt || code == sqlite.ResultNotADB)
}

// IsFull reports whether err says that the disk is full.
func IsFull(err error) bool {
	return err != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// Write runs fn in a write transaction, and rolls it back if fn fails. The wait
// for a running write transaction does not end with ctx.
func (d *DB) Write(ctx context.Context, fn func(*Tx) error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.write(ctx, fn)
}

func (d *DB) write(ctx context.Context, fn func(*Tx) error) (err error) {
	_, err = d.change(ctx, fn)
	return err
}

// change is Write and reports whether a row was changed.
func (d *DB) change(ctx context.Context, fn func(*Tx) error) (changed bool, err error) {
	if d.writer == nil {
		return false, errClosed
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	end, err := sqlitex.ImmediateTransaction(d.writer)
	if err != nil {
		return false, err
	}
	var before, after int64
	defer func() {
		if changed = after != before; changed && err == nil {
			d.commits++
			if d.told != nil {
				d.told()
			}
		}
	}()
	defer end(&err) // also rolls back after a panic
	if before, err = d.changes(); err != nil {
		return false, err
	}
	err = fn(&Tx{d.writer})
	n, counted := d.changes()
	after = n
	return false, errors.Join(err, counted) // changed is valid only after end
}

// OnCommit sets a function that is called after each commit that changed rows;
// nil: none. Writers wait for it: it must return at once and must not use the
// database.
func (d *DB) OnCommit(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = fn
}

// changes returns the number of rows changed by the writer.
func (d *DB) changes() (int64, error) {
	return sqlitex.ResultInt64(d.writer.Prep("SELECT total_changes()"))
}

// WriteSync is Write; when it returns nil this and all earlier commits survive power loss.
func (d *DB) WriteSync(ctx context.Context, fn func(*Tx) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writer == nil {
		return errClosed
	}
	if err := sqlitex.ExecuteTransient(d.writer, "PRAGMA synchronous = FULL", nil); err != nil {
		return err
	}
	changed, err := d.change(ctx, fn)
	if err == nil && changed {
		d.synced = d.commits
	} else if err == nil { // an empty transaction makes SQLite sync nothing, not even earlier commits
		if err = d.syncLog(); err == nil {
			d.synced = d.commits
		}
	}
	return errors.Join(err, sqlitex.ExecuteTransient(d.writer, "PRAGMA synchronous = NORMAL", nil))
}

// Unsynced returns how many of the latest commits since Open a power loss may
// remove. SQLite may already have synced some of them.
func (d *DB) Unsynced() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commits - d.synced
}

// Readers is the number of concurrent calls of [DB.Read]; further calls wait.
const Readers = 4

// Read runs fn in one read transaction. It may wait for other readers until ctx
// ends, so the caller must not hold anything that a reader needs, in particular
// another reader of the same database.
func (d *DB) Read(ctx context.Context, fn func(*Tx) error) (err error) {
	c, err := d.readers.Take(ctx)
	if err != nil {
		return err
	}
	defer d.readers.Put(c)
	defer sqlitex.Transaction(c)(&err)
	return fn(&Tx{c})
}

// Reader opens a read-only connection. The caller must close it before the DB.
func (d *DB) Reader() (*Conn, error) { return connect(d.path, sqlite.OpenReadOnly) }

// Close waits for the running transaction and closes all connections.
func (d *DB) Close() error {
	d.mu.Lock()
	w := d.writer
	d.writer = nil
	d.mu.Unlock()
	if w == nil {
		return nil
	}
	return errors.Join(d.readers.Close(), d.spares.close(), w.Close(), d.file.Close()) // a running Clone has a reader and may wait for mu
}
