package daemon

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/job"
	"holt/internal/workspace"
)

// openJobs goes on with the jobs.
func (d *Daemon) openJobs(ctx context.Context) (err error) {
	d.jobs, err = job.Open(ctx, job.Config{
		DB: d.db, Keys: d.keys, Dir: filepath.Join(d.cfg.DataDir, "jobs"), Computers: computers{d.computers, d.computers.Memory()}, Runs: d.computers.Runs(),
		Workspaces: jobSpaces{d.workspaces}, Log: d.log, Fail: d.cfg.Fail,
	})
	return err
}

// Jobs returns the jobs.
func (d *Daemon) Jobs() *job.Store { return d.jobs }

// ofNoJob selects the workspaces that somebody has made for himself.
const ofNoJob = `id NOT IN (SELECT workspace FROM job) AND id NOT IN (SELECT workspace FROM job_inputs)`

// jobSpaces are the workspaces as jobs need them; see [job.Workspaces].
type jobSpaces struct{ *Workspaces }

func (f jobSpaces) Find(ctx context.Context, ref string) (holt.WorkspaceID, error) {
	r, err := f.table.find(ctx, ref)
	return r.id, err
}

func (f jobSpaces) Make(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, at string) error {
	if from == "" {
		return guestSpaces(f).Make(ctx, id, name, computer.WorkspaceQuota(holt.DefaultWorkspaceMB))
	}
	if _, err := f.table.find(ctx, string(id)); err == nil {
		return nil
	}
	if at == "" || at == holt.Live {
		f.History().flush(ctx, string(from))
	}
	return guestSpaces(f).forkAt(ctx, id, from, workspace.ForkOptions{At: at, Child: name}, func(_ row, ws *workspace.Workspace) holt.Quota {
		q := computer.WorkspaceQuota(holt.DefaultWorkspaceMB)
		bytes, files := ws.Stored() // what it begins with does not count
		return holt.Quota{Bytes: q.Bytes + bytes, Files: q.Files + files}
	})
}

func (f jobSpaces) Mkdir(ctx context.Context, id holt.WorkspaceID, path string) error {
	_, err := f.Files().Mkdir(ctx, string(id), holt.MkdirSpec{Path: holt.OSString(path), Parents: true}, "")
	return err
}

// Flush comes after the one at the run's end, since a guest does one at a time, and waits for a guest
// that this daemon has just taken over.
func (f jobSpaces) Flush(ctx context.Context, id holt.WorkspaceID) error {
	f.guests.Settle(ctx, id)
	for {
		err := f.guests.Flush(ctx, id)
		if code := holt.CodeOf(err); code != holt.Conflict && code != holt.Unavailable {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (f jobSpaces) Measure(ctx context.Context, id holt.WorkspaceID, path string) (holt.Usage, error) {
	all, err := f.Usage(ctx, string(id), path, 0)
	if err != nil {
		return holt.Usage{}, err
	}
	return all[0], nil
}

func (f jobSpaces) Import(ctx context.Context, id holt.WorkspaceID, in io.Reader) (holt.TransferReport, error) {
	return f.Workspaces.Import(ctx, string(id), holt.ImportSpec{Path: "/"}, in)
}

func (f jobSpaces) Export(ctx context.Context, id holt.WorkspaceID, path string, out io.Writer) error {
	return f.Workspaces.Export(ctx, string(id), holt.ExportSpec{Path: path}, out)
}

func (f jobSpaces) Remove(ctx context.Context, id holt.WorkspaceID) error {
	return f.Workspaces.Remove(ctx, id)
}
