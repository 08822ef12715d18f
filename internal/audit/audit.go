// Package audit is the audit log: each call through a door, with its caller, its object and its result.
//
// It is not the daemon's log, which is for diagnosis, nor the history of workspaces, which records changes of files. It
// has no contents of requests or answers.
//
// Format: one SQLite database, audit.db, with one table, entry. Its triggers refuse to change or replace a row, and to
// delete one of the newest [KeepEntries] that is younger than [KeepDays] days. [Log] deletes the rows that are older,
// and the others that are not among the newest [KeepOwn] of their tenant. Entries of callers without a credential are
// limited by [Seldom], so that they do not displace the others; every permitted call of a token is recorded. SQL of a tenant
// runs without the database, with the tenant's rows as a virtual table, so that it cannot reach other rows.
//
// [Log.Record] returns when its entry is committed, so entries survive kill -9 of the daemon. Entries of concurrent calls
// are committed together. Power loss can lose the last entries, never one in the middle.
//
// Trap: a caller gets its answer after its entry is committed. If the entry cannot be written (the disk is full) the call
// succeeds, and the daemon's log says that it is not in the audit log.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/store/db"
)

const (
	// KeepDays is the number of days for which entries are kept.
	KeepDays = 90
	// KeepEntries is the number of newest entries that are kept, if they are younger: about 300 MiB.
	KeepEntries = 1_000_000
	// KeepOwn is the number of newest entries of each tenant that are kept too, so that a tenant does not displace the
	// entries of another.
	KeepOwn = mostQueried

	mostText    = 400 // bytes of a name or a reference
	together    = 256 // entries in one commit
	pruneEvery  = 1000
	pruneAtOnce = 5000
	// mostQueried is the number of a tenant's newest entries that its SQL sees.
	mostQueried = 50_000
)

// schema makes the table. at is in nanoseconds since 1970.
var schema = fmt.Sprintf(`
CREATE TABLE entry (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	at      INTEGER NOT NULL,
	tenant  TEXT NOT NULL,
	actor   TEXT NOT NULL,
	token   TEXT NOT NULL,
	name    TEXT NOT NULL,
	door    TEXT NOT NULL,
	remote  TEXT NOT NULL,
	op      TEXT NOT NULL,
	noun    TEXT NOT NULL,
	ref     TEXT NOT NULL,
	made    TEXT NOT NULL,
	code    TEXT NOT NULL,
	status  INTEGER NOT NULL,
	request TEXT NOT NULL,
	took_us INTEGER NOT NULL
);
CREATE INDEX entry_tenant ON entry (tenant, seq);
CREATE TRIGGER entry_is BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
CREATE TRIGGER entry_new BEFORE INSERT ON entry WHEN NEW.seq IN (SELECT seq FROM entry) BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
CREATE TRIGGER entry_stays BEFORE DELETE ON entry
	WHEN OLD.at > (unixepoch() - %d * 86400) * 1000000000 AND OLD.seq > (SELECT max(seq) FROM entry) - %d
	BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
`, KeepDays, KeepEntries)

// columns are the columns of the table audit that callers query, as SQL of entry.
const columns = `seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e9, 'unixepoch') AS at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us`

var columnNames = []string{"seq", "at", "tenant", "actor", "token", "name", "door", "remote", "op", "noun", "ref", "made", "code", "status", "request", "took_us"}

// Log is an open audit log. The nil Log records nothing.
type Log struct {
	db      *db.DB
	log     *slog.Logger
	queue   chan *pending
	queries db.Turns

	mu     sync.RWMutex // read-locked while an entry is put into the queue
	closed bool
	wg     sync.WaitGroup
	count  int // entries since the last prune; only commit uses it

	keepOwn int // KeepOwn

	visits, refused Seldom // of callers without a credential
}

type Entry = holt.AuditEntry

type pending struct {
	entry Entry
	done  chan error
}

// Open opens or makes the log in a directory.
func Open(dir string, log *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make audit log: %w", err)
	}
	d, err := db.Open(filepath.Join(dir, "audit.db"), schema, "")
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	l := &Log{db: d, log: log, queue: make(chan *pending, together), queries: db.Turns{Most: 2, OfTenant: 1}, keepOwn: KeepOwn}
	l.wg.Go(l.commit)
	return l, nil
}

// Close waits for the entries that are being recorded.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	l.wg.Wait()
	return l.db.Close()
}

// Record writes an entry and returns when it is committed. It fills in the time and the caller of ctx if the entry has
// none. The end of ctx does not interrupt it. Entries of callers without a credential are limited by [Seldom].
func (l *Log) Record(ctx context.Context, e Entry) {
	if l == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Actor == "" {
		e = Who(ctx, e)
	}
	if s := l.limiterOf(e); s != nil {
		more, ok := s.Add(source(e), e.At)
		if !ok {
			return
		}
		e.Ref = More(e.Ref, more)
	}
	p := &pending{clipped(e), make(chan error, 1)}
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		l.log.Error("the audit log is closed: the call is not recorded", "request", e.Request, "op", e.Op)
		return
	}
	l.queue <- p
	l.mu.RUnlock()
	if err := <-p.done; err != nil {
		l.log.Error("write audit log: the call is not recorded", "request", e.Request, "op", e.Op, "token", e.Token, "code", e.Code, "err", err)
	}
}
