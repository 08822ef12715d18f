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

// Send takes files for jobs to begin with, as a parcel. They are kept for as
// long as a job needs them, and an hour more.
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

// Drop says that nobody makes jobs of inputs any more: they go with the last
// that there is. It is no error if they are gone.
func (s *Store) Drop(ctx context.Context, id holt.JobInputsID, _ string) error {
	err := write(ctx, s.cfg.DB, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE job_inputs SET used = 0 WHERE id = ?1 AND (?2 = '' OR tenant = ?2)`, id, holt.Confined(ctx))
	})
	if err == nil {
		err = s.unused(context.WithoutCancel(ctx), time.Now().Add(-holt.JobInputsKept))
	}
	return err
}

// inputs returns the workspace that holds some.
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

// sent are inputs and the workspace that holds them.
type sent struct {
	id        holt.JobInputsID
	workspace holt.WorkspaceID
}

// unused removes the inputs that no job needs and nobody has made one of since.
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

// dropInputs removes inputs, their row at last: a job that was made of them meanwhile says that they are gone.
func (s *Store) dropInputs(ctx context.Context, one sent) {
	err := write(ctx, s.cfg.DB, func(tx *db.Tx) error { return tx.Exec(`UPDATE job_inputs SET used = 0 WHERE id = ?`, one.id) })
	if err == nil {
		err = s.cfg.Workspaces.Remove(ctx, one.workspace)
	}
	if err == nil {
		err = write(ctx, s.cfg.DB, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM job_inputs WHERE id = ?`, one.id) })
	}
	if err != nil {
		s.log.WarnContext(ctx, "remove job inputs", "inputs", one.id, "err", err) // the next round tries again
	}
}

// tidyFiles removes, before anything else is done, what a killed daemon left half-done: inputs that
// did not all come, output of jobs that are gone.
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

// keepTidy removes what was kept for long enough.
func (s *Store) keepTidy() {
	for {
		if err := s.tidy(s.ctx, time.Now()); err != nil && s.ctx.Err() == nil {
			s.log.Warn("remove what old jobs left", "err", err)
		}
		select {
		case <-time.After(tidying):
		case <-s.ctx.Done():
			return
		}
	}
}

// tidy removes what is kept no longer at that time.
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
	// One whose outputs somebody may still fetch is remembered, however many of its tenant came after it.
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
