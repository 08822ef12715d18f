package computer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/store/db"
)

// keyLife is how long an idempotency key is remembered after its first use.
const keyLife = 24 * time.Hour

// mostKey bounds an idempotency key, bytes.
const mostKey = 255

// The keys of a tenant beyond the newest keptKeys are forgotten earlier, and those beyond the newest with keptAnswers
// bytes of answers: whoever calls on and on would fill the control database of all. It is looked after so many calls, or
// bytes.
const (
	keptKeys     = 100_000
	keptAnswers  = 64 << 20
	lookAtKeys   = 10_000
	lookAtAnswer = 16 << 20
)

// Keys remembers which mutating calls were answered, so that a call repeated
// with the same idempotency key acts once and gets the first answer. A call
// that failed changed nothing; its repeat acts anew.
//
// A daemon that is killed during a call leaves a key without an answer. If the
// call had bound the key to what it made (see [Claim.Bind]) the repeat finishes
// that; if not, nothing was made and the repeat acts anew. What such a call was to
// remove may be gone: see [Call].Removes.
type Keys struct {
	db *db.DB

	mu     sync.Mutex
	active map[string]*call

	mostKeys, mostAnswers int // of a tenant
	added, bytes          int // since it was looked
}

type call struct {
	method string
	hash   [sha256.Size]byte
	done   chan struct{}
}

// NewKeys returns the keys of a control database.
func NewKeys(d *db.DB) *Keys {
	return &Keys{db: d, active: map[string]*call{}, mostKeys: keptKeys, mostAnswers: keptAnswers}
}

// Claim is the key of a call under way. The nil Claim is a call without one.
type Claim struct{ key string }

// Bind records, in the transaction that makes it, what the call makes.
func (c *Claim) Bind(tx *db.Tx, ref string) error {
	if c == nil {
		return nil
	}
	return tx.Exec(`UPDATE idempotency SET ref = ? WHERE key = ?`, ref, c.key)
}

// Bound returns what the key was bound to; "" if it was not.
func (c *Claim) Bound(ctx context.Context, d *db.DB) (ref string, err error) {
	if c == nil {
		return "", nil
	}
	err = read(ctx, d, func(tx *db.Tx) error {
		ref, _, err = textOf(tx, `SELECT ref FROM idempotency WHERE key = ?`, c.key)
		return err
	})
	return ref, err
}

// Call is a mutating call with an idempotency key.
type Call[T any] struct {
	Key     string // "": no key, Act is simply called
	Method  string // names the kind of call, as "computer.create"
	Request any    // what makes two calls the same; marshalled to JSON
	// Act does it. An error means that nothing was changed.
	Act func(ctx context.Context, claim *Claim) (T, error)
	// Again answers a repeat whose first call was cut off by a daemon's end
	// after it had bound ref. Nil: Act is called.
	Again func(ctx context.Context, ref string) (T, error)
	// Removes says that the call takes something away. A repeat whose first call
	// a daemon's end cut off, and that finds nothing, is done: its answer is zero.
	Removes bool
}

// Once does a call unless it was done before.
//
// Errors: Conflict when the key was used for another call; those of [holt.Before], and of Act.
func Once[T any](ctx context.Context, k *Keys, c Call[T]) (T, error) {
	var zero T
	ctx = withVerb(ctx, c.Method)
	if c.Key == "" {
		ctx, err := holt.AskBefore(ctx)
		if err != nil {
			return zero, err
		}
		return c.Act(ctx, nil)
	}
	if len(c.Key) > mostKey {
		return zero, holt.Errorf(holt.InvalidArgument, "the idempotency key has %d bytes", len(c.Key)).
			WithHint("at most %d; a random identifier will do", mostKey)
	}
	c.Key = keyIn(ctx, c.Key)
	hash, err := requestHash(c.Request)
	if err != nil {
		return zero, err
	}
	mine := &call{method: c.Method, hash: hash, done: make(chan struct{})}
	if err := k.enter(ctx, c.Key, mine); err != nil {
		return zero, err
	}
	defer k.leave(c.Key, mine)
	return execute(ctx, k, c, mine)
}

// keyIn is how a key is kept: each tenant has its own, and learns nothing of what another has used.
func keyIn(ctx context.Context, key string) string {
	in := holt.TenantOf(ctx)
	if key == "" || in == holt.DefaultTenant && !strings.Contains(key, keyMark) {
		return key
	}
	return in + keyMark + key
}

// keyMark is between a tenant and its key.
const keyMark = "\x1f"

// keyAsGiven is the key without the tenant's name.
func keyAsGiven(key string) string {
	if _, given, of := strings.Cut(key, keyMark); of {
		return given
	}
	return key
}

func requestHash(request any) ([sha256.Size]byte, error) {
	b, err := json.Marshal(request) // maps come out sorted
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode request: %w", err)
	}
	return sha256.Sum256(b), nil
}

// enter waits until no other call with this key is under way.
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
			return gone(ctx)
		}
	}
}

func (k *Keys) leave(key string, mine *call) {
	k.mu.Lock()
	delete(k.active, key)
	k.mu.Unlock()
	close(mine.done)
}

func keyConflict(key string) error {
	return holt.Errorf(holt.Conflict, "the idempotency key %q was used for another request", clip(keyAsGiven(key))).
		WithHint("use a new key for a new request")
}

func execute[T any](ctx context.Context, k *Keys, c Call[T], mine *call) (T, error) {
	var zero T
	first, err := k.claim(ctx, c.Key, mine)
	if err != nil {
		return zero, err
	}
	if first.answered {
		var answer T
		if err := json.Unmarshal(first.answer, &answer); err != nil {
			return zero, fmt.Errorf("decode recorded answer: %w", err)
		}
		return answer, nil
	}
	var answer T
	if first.cutOff {
		ctx = holt.Before(ctx, nil)
	} else {
		ctx, err = holt.AskBefore(ctx)
	}
	switch {
	case err != nil:
	case first.ref != "" && c.Again != nil:
		answer, err = c.Again(ctx, first.ref)
	default:
		answer, err = c.Act(ctx, &Claim{c.Key})
		if c.Removes && first.cutOff && holt.CodeOf(err) == holt.NotFound {
			answer, err = zero, nil
		}
	}
	// What was done or undone is recorded even if the caller is gone.
	late := context.WithoutCancel(ctx)
	if err != nil {
		if c.Removes && first.cutOff { // the next try may be the one that finds it gone
			return zero, err
		}
		if lost := k.forget(late, c.Key); lost != nil {
			return zero, errors.Join(err, lost)
		}
		return zero, err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return zero, fmt.Errorf("encode answer: %w", err)
	}
	// Without its answer on record the repeat finds what the claim was bound to. To
	// say now that the call failed would be wrong.
	_ = k.record(late, c.Key, b)
	return answer, nil
}

// earlier is what is known of a key's first use.
type earlier struct {
	answered bool
	cutOff   bool // there was one, without an answer
	answer   []byte
	ref      string
}

// claim makes the key ours, or returns what its first use left.
func (k *Keys) claim(ctx context.Context, key string, mine *call) (earlier, error) {
	var e earlier
	now := time.Now()
	err := k.db.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`DELETE FROM idempotency WHERE created < ?`, now.Add(-keyLife).UnixNano()); err != nil {
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
	return e, named(err)
}

func (k *Keys) record(ctx context.Context, key string, answer []byte) error {
	k.mu.Lock()
	k.added++
	k.bytes += len(answer)
	look := k.added >= lookAtKeys || k.bytes >= lookAtAnswer
	if look {
		k.added, k.bytes = 0, 0
	}
	k.mu.Unlock()
	err := k.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE idempotency SET answer = ? WHERE key = ?`, answer, key)
	})
	if look { // whatever becomes of that, the answer is there
		err = errors.Join(err, k.db.Write(ctx, k.shorten))
	}
	return err
}

// shorten forgets what tenants have too much of, the oldest first.
func (k *Keys) shorten(tx *db.Tx) error {
	return tx.Exec(`DELETE FROM idempotency WHERE key IN (
		SELECT key FROM (
			SELECT key, row_number() OVER own AS n, sum(length(answer)) OVER own AS bytes FROM idempotency WHERE answer IS NOT NULL
			WINDOW own AS (PARTITION BY substr(key, 1, instr(key, ?1)) ORDER BY created DESC, key ROWS UNBOUNDED PRECEDING))
		WHERE n > ?2 OR bytes > ?3)`, keyMark, k.mostKeys, k.mostAnswers)
}

func (k *Keys) forget(ctx context.Context, key string) error {
	return k.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`DELETE FROM idempotency WHERE key = ? AND answer IS NULL`, key)
	})
}
