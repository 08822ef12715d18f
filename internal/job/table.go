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
CREATE INDEX job_tenant ON job (` + tenantOf + `, ended > 0);
CREATE INDEX job_begun ON job (seq) WHERE ` + hasBegun + `;
CREATE TABLE job_inputs (
	id        TEXT PRIMARY KEY,
	workspace TEXT NOT NULL,
	tenant    TEXT NOT NULL,
	ready     INTEGER NOT NULL DEFAULT 0, -- all of them have come
	used      INTEGER NOT NULL            -- when a job was made that begins with them, or ended; 0: not wanted any more
) WITHOUT ROWID;
`

// tenantOf is SQL for the tenant of a job.
const tenantOf = `coalesce(json_extract(record, '$.tenant'), 'default')`

// hasBegun selects the jobs that do not wait for room: those that have begun, and those that are cancelled.
const hasBegun = `ended = 0 AND (cancelled OR json_extract(record, '$.state') <> 'queued')`

// ofTenant is SQL that selects the jobs of a tenant, parameter n; the empty tenant selects all.
func ofTenant(n int) string { return fmt.Sprintf(`(?%[1]d = '' OR %[2]s = ?%[1]d)`, n, tenantOf) }

// record is a row of the table job.
type record struct {
	holt.Job
	seq       int64
	run       holt.RunSpec // with its environment
	cancelled bool
	deleted   bool
	workspace holt.WorkspaceID
	base      int64
}

func (r record) tenant() string { return cmp.Or(r.Tenant, holt.DefaultTenant) }

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
		err = holt.Errorf(holt.NotFound, "there is no job %s", id).WithHint("holt job list shows all jobs; the last %d ended jobs of a tenant are kept", holt.JobsKept)
	}
	if err != nil {
		return record{}, err
	}
	return list[0], nil
}

// tenants returns the tenants that have jobs, ended ones included.
func (t table) tenants(ctx context.Context) (list []string, err error) {
	err = t.d.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`WITH RECURSIVE tenant(name) AS (SELECT min(`+tenantOf+`) FROM job
			UNION ALL SELECT (SELECT min(`+tenantOf+`) FROM job WHERE `+tenantOf+` > name) FROM tenant WHERE name IS NOT NULL)
			SELECT name FROM tenant WHERE name IS NOT NULL`, nil, func(row *db.Row) error { list = append(list, row.Text(0)); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read tenants of jobs: %w", err)
	}
	return list, nil
}

// nextOf selects the queued job of a tenant that has waited longest, except those in a JSON array of ids.
const nextOf = `WHERE ` + tenantOf + ` = ?1 AND (ended > 0) = 0 AND json_extract(record, '$.state') = 'queued' AND NOT cancelled
	AND id NOT IN (SELECT value FROM json_each(?2)) ORDER BY seq LIMIT 1`

// next returns the job of a tenant that begins next, except some, or no job.
func (t table) next(ctx context.Context, tenant string, but []holt.JobID) ([]record, error) {
	ids, err := json.Marshal(but)
	if err != nil {
		return nil, err
	}
	return t.list(ctx, nextOf, tenant, string(ids))
}

// setReason records why a job waits, if it does still.
func (t table) setReason(ctx context.Context, id holt.JobID, why string) error {
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
		if err := checkOpenJobs(tx, r.tenant()); err != nil {
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

// mostOpen is the maximum of open jobs of a tenant: those that have not ended.
const mostOpen = 10_000

// checkOpenJobs returns TooMany if the tenant has mostOpen open jobs.
func checkOpenJobs(tx *db.Tx, tenant string) (err error) {
	errRead := tx.Query(`SELECT 1 FROM job WHERE `+tenantOf+` = ? AND (ended > 0) = 0 LIMIT 1 OFFSET ?`, []any{tenant, mostOpen - 1}, func(*db.Row) error {
		err = holt.Errorf(holt.TooMany, "%d jobs of the tenant %s have not ended", mostOpen, tenant).
			WithHint("try again when some have ended; holt job run --batch creates a few at a time")
		return nil
	})
	return cmp.Or(errRead, err)
}

func noInputs(id holt.JobInputsID) error {
	return holt.Errorf(holt.NotFound, "there are no job inputs %s", id).WithHint("send them again: inputs are kept for %s after the last job that used them", holt.ShortDuration(holt.JobInputsKept))
}

func touch(tx *db.Tx, in holt.JobInputsID) error {
	return tx.Exec(`UPDATE job_inputs SET used = ? WHERE id = ? AND used > 0`, time.Now().UnixNano(), in)
}

// save writes the columns of a job that its worker changes.
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

// mark sets a boolean column of a job.
func (t table) mark(ctx context.Context, id holt.JobID, what string) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`UPDATE job SET `+what+` = 1 WHERE id = ?`, id) })
}

func (t table) erase(ctx context.Context, id holt.JobID) error {
	return write(ctx, t.d, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM job WHERE id = ?`, id) })
}

// write changes the control database. The change survives power loss.
func write(ctx context.Context, d *db.DB, fn func(*db.Tx) error) error {
	err := d.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		return hosterror.Full(fmt.Errorf("write jobs: %w", err))
	}
	return err
}

// page returns one page of the list of jobs.
func (t table) page(ctx context.Context, after holt.JobID, limit int) ([]record, error) {
	return t.list(ctx, `WHERE NOT deleted AND (?1 = '' OR seq < (SELECT seq FROM job WHERE id = ?1 AND `+ofTenant(3)+`)) AND `+ofTenant(3)+` ORDER BY seq DESC LIMIT ?2`,
		after, min(cmp.Or(limit, holt.MostPerPage), holt.MostPerPage+1), holt.Confined(ctx))
}
