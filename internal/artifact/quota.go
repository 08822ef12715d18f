package artifact

import (
	"time"

	"holt"
	"holt/internal/store/db"
)

// Steps of the bytes that a writer claims of a quota: a part of what is left, so that concurrent writers do not refuse each other
// what the quota has room for.
const (
	mostClaimed = 16 << 20
	claimedPart = 16
)

// retainedUntil is the end of the retention of what appears now, nanoseconds; 0: none.
func (b bucket) retainedUntil(now time.Time) int64 {
	if b.retain == 0 {
		return 0
	}
	return now.Add(b.retain).UnixNano()
}

// admits returns the bucket as it is now, after the caller has changed a row of an artifact of it. It is an error if the bucket has
// more bytes than its quota by now, or another scan than before.
func (b bucket) admits(tx *db.Tx) (now bucket, err error) {
	err = tx.Query(`SELECT `+bucketColumns+` FROM bucket WHERE id = ?`, []any{b.id}, func(r *db.Row) error { now = scanBucket(r); return nil })
	switch {
	case err != nil:
	case now.quotaMB > 0 && now.used > now.quotaMB<<20:
		err = now.full()
	case b.name != "" && now.scan != b.scan:
		err = holt.Errorf(holt.Conflict, "the scan of the bucket %s was changed meanwhile", b.name).WithHint("try again")
	}
	return now, err
}

func (b bucket) full() error {
	return holt.Errorf(holt.OutOfSpace, "the bucket %s has a quota of %d MiB, which the artifact exceeds", b.name, b.quotaMB).
		WithHint("delete artifacts of it, or raise the quota: holt bucket set %s --quota SIZE", b.name)
}

// claim has n bytes of the writer counted in its bucket, and some that may follow, before they are stored.
func (w *writer) claim(n int64) error {
	return w.s.cfg.DB.Write(w.ctx, func(tx *db.Tx) error {
		var b bucket
		var had int64
		there := false
		err := tx.Query(`SELECT bucket, size FROM artifact WHERE seq = ? AND state = 'writing'`, []any{w.seq}, func(r *db.Row) error {
			b.id, had, there = r.Int64(0), r.Int64(1), true
			return nil
		})
		if err == nil && !there {
			err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", w.id)
		}
		if err != nil {
			return err
		}
		if err := tx.Query(`SELECT `+bucketColumns+` FROM bucket WHERE id = ?`, []any{b.id}, func(r *db.Row) error { b = scanBucket(r); return nil }); err != nil {
			return err
		}
		left := b.quotaMB<<20 - (b.used - had) - n
		if b.quotaMB == 0 { // it was removed meanwhile; if it is set again, the last transaction sees it
			left = mostClaimed * claimedPart
		} else if left < 0 {
			return b.full()
		}
		w.claimed = n + min(mostClaimed, left/claimedPart)
		return tx.Exec(`UPDATE artifact SET size = ? WHERE seq = ?`, w.claimed, w.seq)
	})
}
