// Package audit is the log of what was done through any door: who, what, where, with what result.
//
// It is not the daemon's log, which is for whoever mends the daemon, nor the history of workspaces, which says
// what became of files. It holds no contents: neither what was sent nor what was answered.
//
// Form: one SQLite database, audit.db, with one table, entry: triggers refuse to change or
// replace a row, and to remove one that is younger than [KeepDays] days and among the last [KeepEntries].
// What is older, or beyond these and not among the last [KeepOwn] of its tenant, [Log] removes. What anybody can make happen is written down seldom, see [Seldom],
// so that it does not push out the rest; what tokens are let do is all there. nothing.db, beside
// it, is empty: what a tenant's question is asked of, so that there is nothing in reach but the rows that are
// put before it.
//
// [Log.Record] returns when its entry is committed: it is there after kill -9 of the daemon. Entries that come
// at once are committed together. After power loss the last of them may be missing, never one in the middle.
//
// Traps: a caller has its answer when its entry is there, or a little later, never earlier; who has no room to
// write on is not turned away, but said in the daemon's log to be unrecorded.
package audit

import (
	"context"
	"errors"
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
	// KeepDays is for how many days entries stay.
	KeepDays = 90
	// KeepEntries is how many of the newest stay, if they are younger: some 300 MiB.
	KeepEntries = 1_000_000
	// KeepOwn is how many of the newest of each tenant stay beside these, so that none pushes out another's.
	KeepOwn = mostAsked

	mostText    = 400 // bytes of a name or a reference
	together    = 256 // entries in one commit
	pruneEvery  = 1000
	pruneAtOnce = 5000
	// mostAsked is how many of a tenant's newest entries a question of its own sees.
	mostAsked = 50_000
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

// columns are those of the table audit that people ask, as SQL of entry.
const columns = `seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e9, 'unixepoch') AS at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us`

var columnNames = []string{"seq", "at", "tenant", "actor", "token", "name", "door", "remote", "op", "noun", "ref", "made", "code", "status", "request", "took_us"}

// Log is an open audit log. The nil Log records nothing.
type Log struct {
	db, nothing *db.DB
	log         *slog.Logger
	queue       chan *pending
	asking      db.Turns

	mu     sync.RWMutex // held to read by who puts into the queue
	closed bool
	wg     sync.WaitGroup
	count  int // since something was removed; commit's own

	keepOwn int // KeepOwn

	visits, refused Seldom // of strangers
}

// Entry is what is recorded.
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
	d, err := db.Open(filepath.Join(dir, "audit.db"), []string{schema})
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	nothing, err := db.Open(filepath.Join(dir, "nothing.db"), []string{"SELECT 1;"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open audit log: %w", err), d.Close())
	}
	l := &Log{db: d, nothing: nothing, log: log, queue: make(chan *pending, together), asking: db.Turns{Most: 2, OfTenant: 1}, keepOwn: KeepOwn}
	l.wg.Go(l.commit)
	return l, nil
}

// Close waits for what is being recorded.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	l.wg.Wait()
	return errors.Join(l.db.Close(), l.nothing.Close())
}

// Record writes an entry down, and returns when it is there. It fills in the time, and who calls from ctx
// unless the entry says that. It goes on when ctx ends: what was done was done. Of strangers it writes a few down, see [Seldom].
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
	if s := l.strangers(e); s != nil {
		more, ok := s.Add(stranger(e), e.At)
		if !ok {
			return
		}
		e.Ref = More(e.Ref, more)
	}
	p := &pending{clipped(e), make(chan error, 1)}
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		l.log.Error("not in the audit log: it is closed", "request", e.Request, "op", e.Op)
		return
	}
	l.queue <- p
	l.mu.RUnlock()
	if err := <-p.done; err != nil {
		l.log.Error("not in the audit log", "request", e.Request, "op", e.Op, "token", e.Token, "code", e.Code, "err", err)
	}
}
