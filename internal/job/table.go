package job

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Schema makes the tables of this package in the control database. Times are
// nanoseconds since 1970; 0 means never.
const Schema = `
CREATE TABLE job (
	seq       INTEGER PRIMARY KEY,      -- order of coming
	id        TEXT NOT NULL UNIQUE,
	record    TEXT NOT NULL,            -- JSON of holt.Job
	secret    TEXT NOT NULL DEFAULT '', -- JSON of the command as it was given, with its environment; '' once it has ended
	ended     INTEGER NOT NULL DEFAULT 0,
	cancelled INTEGER NOT NULL DEFAULT 0, -- somebody has asked for that
	workspace TEXT NOT NULL,            -- id of its own; '' once that is removed
	inputs    TEXT NOT NULL,            -- id; '' without
	base      INTEGER NOT NULL DEFAULT 0, -- bytes that earlier attempts wrote
	deleted   INTEGER NOT NULL DEFAULT 0  -- the row is to go too
);
CREATE INDEX job_open ON job (seq) WHERE ended = 0;
CREATE INDEX job_workspace ON job (workspace);
CREATE TABLE job_inputs (
	id        TEXT PRIMARY KEY,
	workspace TEXT NOT NULL,
	ready     INTEGER NOT NULL DEFAULT 0, -- all of them have come
	used      INTEGER NOT NULL            -- when a job was made that begins with them, or ended; 0: nobody wants them
) WITHOUT ROWID;
`

// TenantSchema says whose inputs are; whose a job is, its record says.
const TenantSchema = `
ALTER TABLE job_inputs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
`

// tenantOf is whose a job is.
const tenantOf = `coalesce(json_extract(record, '$.tenant'), 'default')`

// CountSchema has a tenant's jobs found without reading those of others.
const CountSchema = `
CREATE INDEX job_tenant ON job (` + tenantOf + `, ended > 0);
`

// hasBegun selects the jobs that go on without waiting for room: those that have begun, and those to be thrown away.
const hasBegun = `ended = 0 AND (cancelled OR json_extract(record, '$.state') <> 'queued')`

// BegunSchema has these found without reading those that wait.
const BegunSchema = `
CREATE INDEX job_begun ON job (seq) WHERE ` + hasBegun + `;
`

// ofTenant is the condition that a job is a tenant's: parameter n, where ” is any.
func ofTenant(n int) string { return fmt.Sprintf(`(?%[1]d = '' OR %[2]s = ?%[1]d)`, n, tenantOf) }

// record is a job as the control database has it.
type record struct {
	holt.Job
	seq       int64
	run       holt.RunSpec // as it was given
	cancelled bool
	deleted   bool
	workspace holt.WorkspaceID
	base      int64
}

// of is whose the job is.
func (r record) of() string { return cmp.Or(r.Tenant, holt.DefaultTenant) }

const columns = `seq, record, secret, cancelled, workspace, base, deleted`

func scan(row *db.Row) (r record, err error) {
	r.seq, r.cancelled, r.workspace, r.base, r.deleted = row.Int64(0), row.Int64(3) != 0, holt.WorkspaceID(row.Text(4)), row.Int64(5), row.Int64(6) != 0
	if err := json.Unmarshal([]byte(row.Text(1)), &r.Job); err != nil {
		return r, fmt.Errorf("decode a job: %w", err)
	}
	r.run = r.Spec.Run
	if given := row.Text(2); given != "" {
		err = json.Unmarshal([]byte(given), &r.run)
	}
	return r, err
}

type table struct{ d *db.DB }

func (t table) list(ctx context.Context, condition string, args ...any) (list []record, err error) {
	err = t.d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT `+columns+` FROM job `+condition, args, func(row *db.Row) error {
			r, err := scan(row)
			list = append(list, r)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	return list, nil
}

func (t table) get(ctx context.Context, id holt.JobID) (record, error) {
	list, err := t.list(ctx, `WHERE id = ?1 AND NOT deleted AND `+ofTenant(2), id, holt.Confined(ctx))
	if err == nil && len(list) == 0 {
		err = holt.Errorf(holt.NotFound, "there is no job %s", id).WithHint("holt job list shows those there are; the last %d of a tenant that ended are remembered", holt.JobsKept)
	}
	if err != nil {
		return record{}, err
	}
	return list[0], nil
}

// tenants returns whose jobs there are, also such that have ended.
func (t table) tenants(ctx context.Context) (list []string, err error) {
	err = t.d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`WITH RECURSIVE tenant(name) AS (SELECT min(`+tenantOf+`) FROM job
			UNION ALL SELECT (SELECT min(`+tenantOf+`) FROM job WHERE `+tenantOf+` > name) FROM tenant WHERE name IS NOT NULL)
			SELECT name FROM tenant WHERE name IS NOT NULL`, nil, func(row *db.Row) error { list = append(list, row.Text(0)); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read whose jobs there are: %w", err)
	}
	return list, nil
}

// nextOf selects of a tenant the job that has waited for longest, but for those that a JSON array names.
const nextOf = `WHERE ` + tenantOf + ` = ?1 AND (ended > 0) = 0 AND json_extract(record, '$.state') = 'queued' AND NOT cancelled
	AND id NOT IN (SELECT value FROM json_each(?2)) ORDER BY seq LIMIT 1`

// next returns the job of a tenant that is to begin next, but for some; none if there is none.
func (t table) next(ctx context.Context, tenant string, but []holt.JobID) ([]record, error) {
	ids, err := json.Marshal(but)
	if err != nil {
		return nil, err
	}
	return t.list(ctx, nextOf, tenant, string(ids))
}

// because writes down why a job waits, if it still does.
func (t table) because(ctx context.Context, id holt.JobID, why string) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE job SET record = json_set(record, '$.reason', ?2) WHERE id = ?1 AND ended = 0 AND NOT cancelled AND json_extract(record, '$.state') = 'queued'`, id, why)
	})
}

func (t table) insert(ctx context.Context, r record, claim *idempotency.Claim) error {
	shown, err := json.Marshal(r.Job)
	if err != nil {
		return err
	}
	given, err := json.Marshal(r.run)
	if err != nil {
		return err
	}
	return write(ctx, t.d, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(r.ID)); err != nil {
			return err
		}
		if err := few(tx, r.of()); err != nil {
			return err
		}
		if in := r.Spec.Inputs; in != "" {
			ready := false
			if err := tx.Query(`SELECT 1 FROM job_inputs WHERE id = ? AND ready AND used > 0 AND tenant = ?`, []any{in, cmp.Or(r.Tenant, holt.DefaultTenant)}, func(*db.Row) error { ready = true; return nil }); err != nil {
				return err
			}
			if !ready {
				return noInputs(in)
			}
			if err := touch(tx, in); err != nil {
				return err
			}
		}
		return tx.Exec(`INSERT INTO job (id, record, secret, workspace, inputs) VALUES (?, ?, ?, ?, ?)`, r.ID, string(shown), string(given), r.workspace, r.Spec.Inputs)
	})
}

// mostOpen is how many jobs of a tenant have not ended.
const mostOpen = 10_000

// few refuses a job of a tenant that has as many as it may.
func few(tx *db.Tx, tenant string) (err error) {
	errRead := tx.Query(`SELECT 1 FROM job WHERE `+tenantOf+` = ? AND (ended > 0) = 0 LIMIT 1 OFFSET ?`, []any{tenant, mostOpen - 1}, func(*db.Row) error {
		err = holt.Errorf(holt.TooMany, "%d jobs of the tenant %s have not ended", mostOpen, tenant).
			WithHint("make more when some have: holt job run --batch makes a few at a time")
		return nil
	})
	return cmp.Or(errRead, err)
}

func noInputs(id holt.JobInputsID) error {
	return holt.Errorf(holt.NotFound, "there are no job inputs %s", id).WithHint("send them again: they are kept for %s after the last job that began with them", holt.ShortDuration(holt.JobInputsKept))
}

func touch(tx *db.Tx, in holt.JobInputsID) error {
	return tx.Exec(`UPDATE job_inputs SET used = ? WHERE id = ? AND used > 0`, time.Now().UnixNano(), in)
}

// save writes what can change of a job, but for what others than its worker write.
func (t table) save(ctx context.Context, r record) error {
	shown, err := json.Marshal(r.Job)
	if err != nil {
		return err
	}
	var ended int64
	if r.EndedAt != nil {
		ended = r.EndedAt.UnixNano()
	}
	return write(ctx, t.d, func(tx *db.Tx) error {
		if ended != 0 {
			if err := touch(tx, r.Spec.Inputs); err != nil {
				return err
			}
		}
		return tx.Exec(`UPDATE job SET record = ?2, ended = ?3, workspace = ?4, base = ?5, secret = CASE WHEN ?3 = 0 THEN secret ELSE '' END WHERE id = ?1`,
			r.ID, string(shown), ended, r.workspace, r.base)
	})
}

// mark writes one thing about a job that somebody has asked for.
func (t table) mark(ctx context.Context, id holt.JobID, what string) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE job SET `+what+` = 1 WHERE id = ?`, id) })
}

func (t table) erase(ctx context.Context, id holt.JobID) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM job WHERE id = ?`, id) })
}

// write changes the control database; it survives power loss.
func write(ctx context.Context, d *db.DB, fn func(*db.Tx) error) error {
	err := d.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		return hosterror.Full(fmt.Errorf("write jobs: %w", err))
	}
	return err
}

// page is which jobs a list shows.
func (t table) page(ctx context.Context, after holt.JobID, limit int) ([]record, error) {
	return t.list(ctx, `WHERE NOT deleted AND (?1 = '' OR seq < (SELECT seq FROM job WHERE id = ?1 AND `+ofTenant(3)+`)) AND `+ofTenant(3)+` ORDER BY seq DESC LIMIT ?2`,
		after, min(cmp.Or(limit, holt.MostPerPage), holt.MostPerPage+1), holt.Confined(ctx))
}
