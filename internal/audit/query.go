package audit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/store/db"
)

// List returns entries, the newest first, of one tenant or, with "", of all.
func (l *Log) List(ctx context.Context, spec holt.AuditSpec) ([]Entry, error) {
	list := []Entry{}
	err := l.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us FROM entry
			WHERE (?1 = 0 OR seq < ?1) AND (?2 = '' OR tenant = ?2) ORDER BY seq DESC LIMIT ?3`,
			[]any{spec.Before, spec.Tenant, min(cmp.Or(spec.Limit, 100), 1001)}, func(r *db.Row) error {
				list = append(list, scan(r))
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return list, nil
}

func scan(r *db.Row) Entry {
	return Entry{
		Seq: r.Int64(0), At: time.Unix(0, r.Int64(1)).UTC(), Tenant: r.Text(2), Actor: r.Text(3), Token: holt.TokenID(r.Text(4)), Name: r.Text(5), Door: r.Text(6),
		Remote: r.Text(7), Op: r.Text(8), Noun: r.Text(9), Ref: r.Text(10), Made: r.Text(11), Code: r.Text(12), Status: int(r.Int64(13)), Request: r.Text(14),
		TookMS: float64(r.Int64(15)) / 1000,
	}
}

// Query runs SQL on the table audit. With a tenant, the table has only that tenant's newest 50,000 entries.
//
// Errors: InvalidArgument (the SQL), Timeout, TooMany (too many queries of the tenant wait).
func (l *Log) Query(ctx context.Context, tenant string, q holt.TableQuery) (holt.QueryResult, error) {
	limits, err := db.LimitsOf(q, "the audit log")
	if err != nil {
		return holt.QueryResult{}, err
	}
	end, err := l.queries.Take(ctx)
	if err != nil {
		return holt.QueryResult{}, err
	}
	defer end()
	of := db.Source{DB: l.db, Views: `CREATE TEMP VIEW audit AS SELECT ` + columns + ` FROM main.entry;`}
	if tenant != "" {
		of = db.Source{Tables: []db.Table{{Name: "audit", Columns: columnNames, Find: func(*db.Tx, []string) (db.Rows, error) { return l.rowsOf(ctx, tenant) }}}}
	}
	return of.Query(ctx, q.SQL, limits)
}

// rows is a tenant's newest entries as a virtual table.
type rows [][]any

func (r rows) Len() int { return len(r) }

func (r rows) Value(row, column int) any {
	if column < len(r[row]) {
		return r[row][column]
	}
	return nil
}

func (l *Log) rowsOf(ctx context.Context, tenant string) (rows, error) {
	var all rows
	err := l.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+columns+` FROM entry WHERE tenant = ? ORDER BY seq DESC LIMIT ?`, []any{tenant, mostQueried}, func(r *db.Row) error {
			all = append(all, []any{r.Int64(0), r.Text(1), r.Text(2), r.Text(3), r.Text(4), r.Text(5), r.Text(6), r.Text(7), r.Text(8), r.Text(9), r.Text(10), r.Text(11), r.Text(12), r.Int64(13), r.Text(14), r.Int64(15)})
			return nil
		})
	})
	return all, err
}
