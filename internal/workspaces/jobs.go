package workspaces

import (
	"context"
	"io"
	"path"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/workspace"
)

// notOfJob selects the workspaces that do not belong to a job.
const notOfJob = `id NOT IN (SELECT workspace FROM job) AND id NOT IN (SELECT workspace FROM job_inputs)`

// ForJobs are the workspaces as jobs use them; see [holt/internal/job.Workspaces].
type ForJobs struct{ *Store }

func (f ForJobs) Find(ctx context.Context, ref string) (holt.WorkspaceID, error) {
	r, err := f.table.find(ctx, ref)
	return r.id, err
}

func (f ForJobs) Make(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, at string) error {
	if from == "" {
		return ForComputers(f).Make(ctx, id, name, computer.WorkspaceQuota(holt.DefaultWorkspaceMB))
	}
	if _, err := f.table.find(ctx, string(id)); err == nil {
		return nil
	}
	if at == "" || at == holt.Live {
		f.History().flush(ctx, string(from))
	}
	return ForComputers(f).forkAt(ctx, id, from, workspace.ForkOptions{At: at, Child: name}, func(_ row, ws *workspace.Workspace) holt.Quota {
		q := computer.WorkspaceQuota(holt.DefaultWorkspaceMB)
		bytes, files := ws.Stored() // the content of the fork point does not count
		return holt.Quota{Bytes: q.Bytes + bytes, Files: q.Files + files}
	})
}

func (f ForJobs) Mkdir(ctx context.Context, id holt.WorkspaceID, path string) error {
	_, err := f.Files().Mkdir(ctx, string(id), holt.MkdirSpec{Path: holt.OSString(path), Parents: true}, "")
	return err
}

// Flush has the guest of a job's computer write its memory maps. A guest does one flush at a time, and one that this
// daemon has just taken over needs a moment: Flush tries until it succeeds or ctx ends.
func (f ForJobs) Flush(ctx context.Context, id holt.WorkspaceID) error {
	if f.guests == nil {
		return nil
	}
	f.guests.Settle(ctx, id)
	for {
		err := f.guests.Flush(ctx, id)
		if code := holt.CodeOf(err); code != holt.Conflict && code != holt.Unavailable {
			return err
		}
		select {
		case <-time.After(flushRetry):
		case <-ctx.Done():
			return err
		}
	}
}

func (f ForJobs) Measure(ctx context.Context, id holt.WorkspaceID, path string) (holt.Usage, error) {
	all, err := f.Usage(ctx, string(id), path, 0)
	if err != nil {
		return holt.Usage{}, err
	}
	return all[0], nil
}

func (f ForJobs) FilesIn(ctx context.Context, id holt.WorkspaceID, dir string, most int) (list []holt.OSString, err error) {
	entries := 0
	for left := []string{""}; len(left) > 0; left = left[1:] {
		at := left[0]
		for cursor := ""; ; {
			page, err := f.Files().List(ctx, string(id), path.Join(dir, at), holt.PageSpec{Cursor: cursor})
			if err != nil {
				return nil, err
			}
			for _, one := range page.Items {
				name := path.Join(at, path.Base(string(one.Path)))
				switch one.Kind {
				case "dir":
					left = append(left, name)
				case "file":
					list = append(list, holt.OSString(name))
				}
			}
			if entries += len(page.Items); entries > most {
				return nil, holt.Errorf(holt.TooMany, "%s has more than %d files and directories", dir, most).WithHint("put them into an archive: tar or zip")
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	return list, nil
}

func (f ForJobs) Import(ctx context.Context, id holt.WorkspaceID, in io.Reader) (holt.TransferReport, error) {
	return f.Store.Import(ctx, string(id), holt.ImportSpec{Path: "/"}, in)
}

func (f ForJobs) Export(ctx context.Context, id holt.WorkspaceID, path string, out io.Writer) error {
	return f.Store.Export(ctx, string(id), holt.ExportSpec{Path: path}, out)
}

func (f ForJobs) Remove(ctx context.Context, id holt.WorkspaceID) error {
	return f.Store.Remove(ctx, id)
}
