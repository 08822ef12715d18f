package audit

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/store/db"
)

// clipped shortens the texts that callers choose, and removes secrets from them.
func clipped(e Entry) Entry {
	for _, s := range []*string{&e.Tenant, &e.Name, &e.Remote, &e.Op, &e.Noun, &e.Ref, &e.Made, &e.Request} {
		*s = holt.Clip(holt.Redact(*s), mostText)
	}
	return e
}

// Who fills in the caller of ctx.
func Who(ctx context.Context, e Entry) Entry {
	a, credential := holt.ActorOf(ctx)
	e.Tenant, e.Token, e.Name = a.Tenant, a.Token, a.Name
	switch {
	case !credential:
		e.Actor = "person"
	case a.Token != "":
		e.Actor = "token"
	case a.Computer != "":
		e.Actor = "computer"
	default:
		e.Actor = "schedule"
	}
	return e
}

// commit writes the entries of the queue, those that wait in one transaction.
func (l *Log) commit() {
	for first := range l.queue {
		batch := []*pending{first}
		for len(batch) < together {
			select {
			case p, open := <-l.queue:
				if open {
					batch = append(batch, p)
					continue
				}
			default:
			}
			break
		}
		err := l.write(batch)
		for _, p := range batch {
			p.done <- err
		}
		if l.count += len(batch); err == nil && l.count >= pruneEvery && l.prune() {
			l.count = 0
		}
	}
}

func (l *Log) write(batch []*pending) error {
	return l.db.Write(context.Background(), func(tx *db.Tx) error {
		for _, p := range batch {
			e := p.entry
			err := tx.Exec(`INSERT INTO entry (at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
				e.At.UnixNano(), e.Tenant, e.Actor, e.Token, e.Name, e.Door, e.Remote, e.Op, e.Noun, e.Ref, e.Made, e.Code, e.Status, e.Request, int64(e.TookMS*1000))
			if err != nil {
				return fmt.Errorf("write audit log: %w", err)
			}
		}
		return nil
	})
}

// prune deletes up to pruneAtOnce entries that need not be kept. done: there are no more, or an error was logged.
func (l *Log) prune() (done bool) {
	err := l.db.Write(context.Background(), func(tx *db.Tx) error {
		err := tx.Exec(`WITH RECURSIVE
				tenants(tenant) AS (SELECT min(tenant) FROM entry UNION ALL SELECT (SELECT min(tenant) FROM entry WHERE tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL),
				own(tenant, seq) AS MATERIALIZED (
					SELECT tenant, min((SELECT seq FROM entry e WHERE e.tenant = t.tenant ORDER BY seq DESC LIMIT 1 OFFSET ?3), (SELECT max(seq) FROM entry) - ?2) FROM tenants t)
			DELETE FROM entry WHERE seq IN (
				SELECT seq FROM entry WHERE seq < coalesce((SELECT seq FROM entry WHERE at > ?1 ORDER BY seq LIMIT 1), (SELECT max(seq) FROM entry) + 1)
				UNION SELECT e.seq FROM own CROSS JOIN entry e ON e.tenant = own.tenant AND e.seq <= own.seq
				ORDER BY 1 LIMIT ?4)`,
			time.Now().Add(-KeepDays*24*time.Hour-time.Minute).UnixNano(), KeepEntries, l.keepOwn, pruneAtOnce)
		done = tx.Changes() < pruneAtOnce
		return err
	})
	if err != nil {
		l.log.Error("delete old entries of the audit log", "err", err)
		return true
	}
	return done
}
