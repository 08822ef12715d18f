package artifact

import (
	"context"
	"math"
	"time"

	"holt/internal/store/db"
)

// rulesSchema keeps what the rules of buckets need. A row with due is beyond the rules of its bucket, and is deleted when it is not
// retained or on hold.
const rulesSchema = `
CREATE INDEX artifact_created ON artifact (bucket, created) WHERE NOT due AND state IN ('storing', 'ready');
CREATE INDEX artifact_due ON artifact (retain) WHERE due AND NOT hold AND state IN ('storing', 'ready');
CREATE TRIGGER artifact_used_new AFTER INSERT ON artifact BEGIN
	UPDATE bucket SET used = used + new.size WHERE id = new.bucket;
END;
CREATE TRIGGER artifact_used AFTER UPDATE OF size, state ON artifact WHEN (new.size, new.state = 'deleting') <> (old.size, old.state = 'deleting') BEGIN
	UPDATE bucket SET used = used + iif(new.state = 'deleting', 0, new.size) - iif(old.state = 'deleting', 0, old.size) WHERE id = new.bucket;
END;
`

// mostAtOnce is how many artifacts the rules change in a transaction.
const mostAtOnce = 1000

// most is how many versions of a name the bucket keeps; 0: all.
func (b bucket) most() int {
	if b.replace {
		return 1
	}
	return b.keep
}

// outdate deletes the versions of a name that the bucket does not keep, or marks those that may not be deleted yet.
func (b bucket) outdate(tx *db.Tx, name string, now time.Time) error {
	if b.most() == 0 {
		return nil
	}
	const older = `seq IN (SELECT seq FROM artifact WHERE bucket = ?1 AND name = ?2 AND state IN ('storing', 'ready') ORDER BY version DESC LIMIT ?4 OFFSET ?3)`
	err := tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE `+older+` AND NOT hold AND retain <= ?5`, b.id, name, b.most(), mostAtOnce, now.UnixNano())
	if err == nil {
		err = tx.Exec(`UPDATE artifact SET due = 1 WHERE `+older+` AND NOT due`, b.id, name, b.most(), mostAtOnce)
	}
	return err
}

// applyRules has the rules of buckets applied soon.
func (s *Store) applyRules() {
	select {
	case s.rules <- struct{}{}:
	default:
	}
}

// keepRules deletes what the rules of buckets no longer allow, until Close.
func (s *Store) keepRules() {
	often := time.NewTicker(again)
	defer often.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.rules:
		case <-often.C:
		}
		if err := s.rulesOnce(s.ctx); err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("the rules of buckets are not applied; they are tried again later", "again_in", again, "err", err)
		}
	}
}

// rulesOnce marks what is due, and deletes what may be deleted.
func (s *Store) rulesOnce(ctx context.Context) error {
	var changed []bucket
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+bucketColumns+` FROM bucket WHERE changed`, nil, func(r *db.Row) error { changed = append(changed, scanBucket(r)); return nil })
	})
	if err != nil {
		return err
	}
	for _, b := range changed {
		if err := s.markOld(ctx, b); err != nil {
			return err
		}
	}
	for more := true; more; {
		if more, err = s.markExpired(ctx); err != nil {
			return err
		}
	}
	for more := true; more; {
		if more, err = s.deleteDue(ctx); err != nil {
			return err
		}
		s.notify()
	}
	return nil
}

// markOld marks the versions that a bucket does not keep since its settings were changed.
func (s *Store) markOld(ctx context.Context, b bucket) error {
	created, seq := int64(math.MinInt64), int64(0)
	for n := mostAtOnce; n == mostAtOnce && b.most() > 0; {
		n = 0
		err := s.write(ctx, func(tx *db.Tx) error {
			var old []int64
			err := tx.Query(`SELECT a.seq, a.created, (SELECT 1 FROM artifact n WHERE n.bucket = a.bucket AND n.name = a.name AND n.version > a.version AND n.state IN ('storing', 'ready')
					ORDER BY n.version DESC LIMIT 1 OFFSET ?1) IS NOT NULL
				FROM artifact a WHERE a.bucket = ?2 AND (a.created, a.seq) > (?3, ?4) AND NOT a.due AND `+visible+` ORDER BY a.created, a.seq LIMIT ?5`,
				[]any{b.most() - 1, b.id, created, seq, mostAtOnce}, func(r *db.Row) error {
					n++
					if seq, created = r.Int64(0), r.Int64(1); r.Int64(2) != 0 {
						old = append(old, seq)
					}
					return nil
				})
			for _, seq := range old {
				if err == nil {
					err = tx.Exec(`UPDATE artifact SET due = 1 WHERE seq = ?`, seq)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE bucket SET changed = 0 WHERE id = ? AND changed = ?`, b.id, b.changed)
	})
}

// markExpired marks some of the artifacts that have expired; more: there may be others.
func (s *Store) markExpired(ctx context.Context) (more bool, err error) {
	err = s.write(ctx, func(tx *db.Tx) error {
		err := tx.Exec(`UPDATE artifact SET due = 1 WHERE seq IN (SELECT a.seq FROM bucket b CROSS JOIN artifact a ON a.bucket = b.id
			WHERE b.expire > 0 AND a.created <= ? - b.expire * 1000000 AND NOT a.due AND `+visible+` LIMIT ?)`, s.cfg.Now().UnixNano(), mostAtOnce)
		more = tx.Changes() == mostAtOnce
		return err
	})
	return more, err
}

// deleteDue deletes some of the artifacts that are due; more: there may be others. One that its bucket's rules allow by now stays.
func (s *Store) deleteDue(ctx context.Context) (more bool, err error) {
	err = s.write(ctx, func(tx *db.Tx) error {
		now := s.cfg.Now()
		list, err := rows(tx, `WHERE a.due AND NOT a.hold AND a.retain <= ? AND `+visible+` LIMIT ?`, now.UnixNano(), mostAtOnce)
		more = len(list) == mostAtOnce
		for _, a := range list {
			if err == nil {
				err = deleteIfDue(tx, a, now)
			}
		}
		return err
	})
	return more, err
}

func deleteIfDue(tx *db.Tx, a row, now time.Time) error {
	var b bucket
	err := tx.Query(`SELECT `+bucketColumns+` FROM bucket WHERE id = ?`, []any{a.bucketID}, func(r *db.Row) error { b = scanBucket(r); return nil })
	due := b.expire > 0 && !now.Before(a.CreatedAt.Add(b.expire))
	if err == nil && !due && b.most() > 0 {
		err = tx.Query(`SELECT 1 FROM artifact a WHERE a.bucket = ? AND a.name = ? AND a.version > ? AND `+visible+` ORDER BY a.version DESC LIMIT 1 OFFSET ?`,
			[]any{a.bucketID, a.Name, a.version, b.most() - 1}, func(*db.Row) error { due = true; return nil })
	}
	switch {
	case err != nil:
		return err
	case due:
		return remove(tx, a)
	}
	return tx.Exec(`UPDATE artifact SET due = 0 WHERE seq = ?`, a.seq)
}

// remove makes a visible artifact invisible. The version or delete marker before the newest is the newest then.
func remove(tx *db.Tx, a row) error {
	newest := false // by now
	err := tx.Query(`SELECT newest FROM artifact WHERE seq = ?`, []any{a.seq}, func(r *db.Row) error { newest = r.Int64(0) != 0; return nil })
	if err == nil {
		err = tx.Exec(`UPDATE artifact SET state = 'deleting', newest = 0 WHERE seq = ?`, a.seq)
	}
	if err != nil || !newest {
		return err
	}
	return tx.Exec(`UPDATE artifact SET newest = 1 WHERE seq = (SELECT seq FROM artifact a WHERE bucket = ? AND name = ? AND `+listable+` ORDER BY version DESC LIMIT 1)`, a.bucketID, a.Name)
}
