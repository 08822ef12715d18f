package job

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Send stores inputs for jobs, from a parcel. They are kept as long as a job needs them, and
// [holt.JobInputsKept] after that.
func (s *Store) Send(ctx context.Context, in io.Reader) (out holt.JobInputs, err error) {
	out.ID = holt.NewJobInputsID()
	ws := holt.NewWorkspaceID()
	err = write(ctx, s.cfg.DB, func(tx *db.Tx) error {
		return tx.Exec(`INSERT INTO job_inputs (id, workspace, used, tenant) VALUES (?, ?, ?, ?)`, out.ID, ws, time.Now().UnixNano(), holt.TenantOf(ctx))
	})
	if err != nil {
		return out, err
	}
	err = s.cfg.Workspaces.Make(ctx, ws, "job-inputs-"+string(out.ID[len("inp_"):]), "", "")
	if err == nil {
		err = s.point("import")
	}
	if err == nil {
		out.TransferReport, err = s.cfg.Workspaces.Import(ctx, ws, in)
	}
	if err == nil {
		err = write(ctx, s.cfg.DB, func(tx *db.Tx) error {
			return tx.Exec(`UPDATE job_inputs SET ready = 1, used = ? WHERE id = ?`, time.Now().UnixNano(), out.ID)
		})
	}
	if err != nil {
		s.dropInputs(context.WithoutCancel(ctx), sent{out.ID, ws})
	}
	return out, err
}

// Drop removes inputs once no job needs them. It is no error if they do not exist.
func (s *Store) Drop(ctx context.Context, id holt.JobInputsID, _ string) error {
	err := write(ctx, s.cfg.DB, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE job_inputs SET used = 0 WHERE id = ?1 AND (?2 = '' OR tenant = ?2)`, id, holt.Confined(ctx))
	})
	if err == nil {
		err = s.unused(context.WithoutCancel(ctx), time.Now().Add(-holt.JobInputsKept))
	}
	return err
}

// inputs returns the workspace of inputs.
func (s *Store) inputs(ctx context.Context, id holt.JobInputsID) (ws holt.WorkspaceID, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT workspace FROM job_inputs WHERE id = ? AND ready`, []any{id}, func(row *db.Row) error {
			ws = holt.WorkspaceID(row.Text(0))
			return nil
		})
	})
	if err == nil && ws == "" {
		err = noInputs(id)
	}
	return ws, err
}

// sent names inputs and their workspace.
type sent struct {
	id        holt.JobInputsID
	workspace holt.WorkspaceID
}

// unused removes the inputs that no open job needs and that were not used since.
func (s *Store) unused(ctx context.Context, since time.Time) error {
	return s.drop(ctx, `ready AND used < ? AND NOT EXISTS (SELECT 1 FROM job WHERE ended = 0 AND job.inputs = job_inputs.id)`, since.UnixNano())
}

func (s *Store) drop(ctx context.Context, condition string, args ...any) error {
	var list []sent
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, workspace FROM job_inputs WHERE `+condition, args, func(row *db.Row) error {
			list = append(list, sent{holt.JobInputsID(row.Text(0)), holt.WorkspaceID(row.Text(1))})
			return nil
		})
	})
	for _, one := range list {
		s.dropInputs(ctx, one)
	}
	return err
}

// dropInputs removes inputs, their row last. A job that is created with them meanwhile fails with NotFound.
func (s *Store) dropInputs(ctx context.Context, one sent) {
	err := write(ctx, s.cfg.DB, func(tx *db.Tx) error { return tx.Exec(`UPDATE job_inputs SET used = 0 WHERE id = ?`, one.id) })
	if err == nil {
		err = s.cfg.Workspaces.Remove(ctx, one.workspace)
	}
	if err == nil {
		err = write(ctx, s.cfg.DB, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM job_inputs WHERE id = ?`, one.id) })
	}
	if err != nil {
		s.log.WarnContext(ctx, "remove job inputs", "inputs", one.id, "err", err) // the next call of tidy retries
	}
}

// tidyFiles removes what a killed daemon left unfinished: incomplete inputs, and output of deleted jobs. It is called
// before anything else.
func (s *Store) tidyFiles(ctx context.Context) error {
	if err := s.drop(ctx, `NOT ready`); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, temp := strings.CutSuffix(e.Name(), ".new")
		list, err := s.table.list(ctx, `WHERE id = ?`, id)
		if err != nil {
			return err
		}
		if temp || len(list) == 0 {
			os.Remove(s.file(holt.JobID(e.Name())))
		}
	}
	return nil
}

// keepTidy calls tidy periodically.
func (s *Store) keepTidy() {
	for {
		if err := s.tidy(s.ctx, time.Now()); err != nil && s.ctx.Err() == nil {
			s.log.Warn("remove old jobs, inputs and outputs", "err", err)
		}
		select {
		case <-time.After(tidyEvery):
		case <-s.ctx.Done():
			return
		}
	}
}

// tidy removes inputs, outputs and records of jobs that are expired at the time now.
func (s *Store) tidy(ctx context.Context, now time.Time) error {
	if err := s.unused(ctx, now.Add(-holt.JobInputsKept)); err != nil {
		return err
	}
	old, err := s.table.list(ctx, `WHERE ended > 0 AND ended < ? AND workspace <> ''`, now.Add(-holt.JobKept).UnixNano())
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := s.release(ctx, &r); err != nil {
			return err
		}
	}
	// A job whose outputs are kept is kept too, however many jobs of its tenant are newer.
	gone, err := s.table.list(ctx, `WHERE ended > 0 AND (deleted OR workspace = '' AND seq IN (SELECT seq FROM
		(SELECT seq, row_number() OVER (PARTITION BY `+tenantOf+` ORDER BY seq DESC) AS nth FROM job WHERE ended > 0) WHERE nth > ?))`, holt.JobsKept)
	if err != nil {
		return err
	}
	for _, r := range gone {
		if err := s.forget(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
