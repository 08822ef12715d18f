// Package idempotency answers a call that is repeated with the same key
// without doing it twice: see [Once].
//
// The first call claims its key, acts, and records its answer. A repeat gets
// that answer. A call that fails changes nothing and frees its key.
//
// If the daemon ends during a call, its key stays without an answer. If the
// call had bound the key to what it made (see [Claim.Bind]), a repeat finishes
// that; if not, nothing was made and the repeat acts. What the first call was
// to remove may be gone: see [Call].Removes.
//
// It is not a lock: two calls with different keys may run at the same time. It
// does not choose keys; callers send them, or send none.
//
// # Format
//
// Table idempotency of the control database; see [Schema].
package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
)

// Schema makes the table of this package.
const Schema = `
CREATE TABLE idempotency (
	key     TEXT PRIMARY KEY,            -- see StoredKey
	method  TEXT NOT NULL,
	request BLOB NOT NULL,               -- SHA-256 of the request
	ref     TEXT NOT NULL,               -- what the call made; '' if nothing yet
	answer  BLOB,                        -- JSON; NULL until the call has ended
	created INTEGER NOT NULL             -- nanoseconds since 1970
) WITHOUT ROWID;
CREATE INDEX idempotency_created ON idempotency (created);
CREATE INDEX idempotency_ref ON idempotency (ref);
`

// KeyLife is how long a key is remembered after its first use.
const KeyLife = 24 * time.Hour

// A tenant that makes very many calls must not fill the control database. Each tenant keeps its
// newest keys, up to keptKeys of them and keptAnswers bytes of answers. The table is trimmed
// after every trimAfterKeys calls, or trimAfterBytes of answers.
const (
	keptKeys       = 100_000
	keptAnswers    = 64 << 20
	trimAfterKeys  = 10_000
	trimAfterBytes = 16 << 20
)

// Keys are the idempotency keys of a control database.
type Keys struct {
	db *db.DB

	mu     sync.Mutex
	active map[string]*call

	mostKeys, mostAnswers int // of a tenant
	added, bytes          int // since the last trim
}

// call is a call in progress.
type call struct {
	method string
	hash   [sha256.Size]byte
	done   chan struct{}
}

// New returns the keys of a control database.
func New(d *db.DB) *Keys {
	return &Keys{db: d, active: map[string]*call{}, mostKeys: keptKeys, mostAnswers: keptAnswers}
}

// Claim is the key of a call in progress. The nil Claim is that of a call without a key.
type Claim struct{ key string }

// ClaimOf returns the claim of a stored key; see [StoredKey].
func ClaimOf(stored string) *Claim { return &Claim{stored} }

// Key returns the key as it is stored; "" for the nil Claim.
func (c *Claim) Key() string {
	if c == nil {
		return ""
	}
	return c.key
}

// Bind records what the call makes. Use the transaction that makes it.
func (c *Claim) Bind(tx *db.Tx, ref string) error {
	if c == nil {
		return nil
	}
	return tx.Exec(`UPDATE idempotency SET ref = ? WHERE key = ?`, ref, c.key)
}

// Bound returns what the key is bound to; "" if to nothing.
func (c *Claim) Bound(ctx context.Context, d *db.DB) (ref string, err error) {
	if c == nil {
		return "", nil
	}
	err = d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT ref FROM idempotency WHERE key = ?`, []any{c.key}, func(r *db.Row) error { ref = r.Text(0); return nil })
	})
	if err != nil && ctx.Err() != nil {
		return "", timeout(ctx) // SQLite says only that it was interrupted
	}
	return ref, err
}

// enter waits until no other call with this key is in progress.
func (k *Keys) enter(ctx context.Context, key string, mine *call) error {
	for {
		k.mu.Lock()
		other := k.active[key]
		if other == nil {
			k.active[key] = mine
		}
		k.mu.Unlock()
		if other == nil {
			return nil
		}
		if other.method != mine.method || other.hash != mine.hash {
			return keyConflict(key)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return timeout(ctx)
		}
	}
}

func (k *Keys) leave(key string, mine *call) {
	k.mu.Lock()
	delete(k.active, key)
	k.mu.Unlock()
	close(mine.done)
}

// earlier is what is known of a key's first use.
type earlier struct {
	answered bool
	cutOff   bool // the first call has no answer: the daemon ended during it
	answer   []byte
	ref      string
}

// claim inserts the key, or returns what its first use left.
func (k *Keys) claim(ctx context.Context, key string, mine *call) (earlier, error) {
	var e earlier
	now := time.Now()
	err := k.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`DELETE FROM idempotency WHERE created < ?`, now.Add(-KeyLife).UnixNano()); err != nil {
			return err
		}
		found := false
		err := tx.Query(`SELECT method, request, ref, answer FROM idempotency WHERE key = ?`, []any{key}, func(r *db.Row) error {
			found = true
			if r.Text(0) != mine.method || string(r.Bytes(1)) != string(mine.hash[:]) {
				return keyConflict(key)
			}
			e.ref, e.answered = r.Text(2), !r.Null(3)
			e.cutOff, e.answer = !e.answered, r.Bytes(3)
			return nil
		})
		if err != nil || found {
			return err
		}
		return tx.Exec(`INSERT INTO idempotency (key, method, request, ref, created) VALUES (?, ?, ?, '', ?)`,
			key, mine.method, mine.hash[:], now.UnixNano())
	})
	if err != nil && holt.CodeOf(err) == holt.Internal {
		err = hosterror.Full(fmt.Errorf("write control database: %w", err))
	}
	return e, err
}

func (k *Keys) record(ctx context.Context, key string, answer []byte) error {
	k.mu.Lock()
	k.added++
	k.bytes += len(answer)
	due := k.added >= trimAfterKeys || k.bytes >= trimAfterBytes
	if due {
		k.added, k.bytes = 0, 0
	}
	k.mu.Unlock()
	err := k.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE idempotency SET answer = ? WHERE key = ?`, answer, key)
	})
	if due { // in a transaction of its own: the answer stays if this fails
		err = errors.Join(err, k.db.Write(ctx, k.trim))
	}
	return err
}

// trim deletes the oldest keys of tenants that have too many.
func (k *Keys) trim(tx *db.Tx) error {
	return tx.Exec(`DELETE FROM idempotency WHERE key IN (
		SELECT key FROM (
			SELECT key, row_number() OVER own AS n, sum(length(answer)) OVER own AS bytes FROM idempotency WHERE answer IS NOT NULL
			WINDOW own AS (PARTITION BY substr(key, 1, instr(key, ?1)) ORDER BY created DESC, key ROWS UNBOUNDED PRECEDING))
		WHERE n > ?2 OR bytes > ?3)`, tenantMark, k.mostKeys, k.mostAnswers)
}

func (k *Keys) forget(ctx context.Context, key string) error {
	return k.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`DELETE FROM idempotency WHERE key = ? AND answer IS NULL`, key)
	})
}
