package daemon

import (
	"context"
	"io"
	"time"

	"holt"
	"holt/internal/store/parcel"
	"holt/internal/workspace"
)

// Import puts a parcel into a workspace, also one that is mounted: kernels
// that have it so are told. A run's watchers see nothing of it.
//
// Errors: those of [workspace.Workspace.Import]; their detail is the report of
// what is there.
func (w *Workspaces) Import(ctx context.Context, ref string, spec holt.ImportSpec, in io.Reader) (report holt.TransferReport, err error) {
	began := time.Now()
	r, err := parcel.NewReader(in)
	if err != nil {
		return report, holt.Errorf(holt.InvalidArgument, "import: %w", err)
	}
	err = w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		defer w.shelf.kernels.settle(ctx, ws)
		defer ws.BeginDirectChange()()
		report, err = ws.Import(ctx, r, workspace.ImportSpec{
			Path: spec.Path, Writer: writerOf(ctx), UID: agentUID, GID: agentUID, Owner: spec.Owner, Devices: spec.Devices, SetID: spec.SetID,
			Changed: w.shelf.kernels.changed(ws),
		})
		return err
	})
	report.ElapsedMS = float64(time.Since(began).Microseconds()) / 1000
	if err != nil {
		e := *holt.AsError(err)
		e.Detail = report
		return report, &e
	}
	return report, nil
}

// Export writes a directory of a workspace as a parcel. An error after the
// first byte leaves out its end, so that nobody takes the part for the whole.
func (w *Workspaces) Export(ctx context.Context, ref string, spec holt.ExportSpec, out io.Writer) error {
	return w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		total, at, err := w.measure(ctx, ws, spec)
		if err != nil {
			return err
		}
		p, err := parcel.NewWriter(out, total)
		if err != nil {
			return err
		}
		if _, err := ws.Export(ctx, p, workspace.ExportSpec{Path: spec.Path, At: at, Devices: spec.Devices, SetID: spec.SetID}); err != nil {
			return err
		}
		return p.Close()
	})
}

// measure says how much an export is about, and of what state. Of the past it
// is only said how much it was in all.
func (w *Workspaces) measure(ctx context.Context, ws *workspace.Workspace, spec holt.ExportSpec) (parcel.Totals, *workspace.View, error) {
	if spec.At == "" || spec.At == holt.Live {
		all, err := ws.Usage(ctx, spec.Path, 0)
		if err != nil {
			return parcel.Totals{}, nil, err
		}
		return parcel.Totals{Entries: all[0].Files + all[0].Dirs, Bytes: all[0].Allocated}, nil, nil
	}
	at, err := ws.At(spec.At)
	if err == nil {
		_, err = (workspace.Files{Tree: ws.Tree(), At: at}).List(spec.Path, holt.PageSpec{Limit: 1}) // while an error can still be told
	}
	if err != nil {
		return parcel.Totals{}, nil, err
	}
	c := at.Checkpoint()
	return parcel.Totals{Entries: c.Files, Bytes: c.Bytes}, at, nil
}

// Usage adds up a directory and, down to depth levels, those in it.
func (w *Workspaces) Usage(ctx context.Context, ref, path string, depth int) (list []holt.Usage, err error) {
	err = w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		list, err = ws.Usage(ctx, path, depth)
		return err
	})
	return list, err
}

// Tags returns the tags of a file.
func (w *Workspaces) Tags(ctx context.Context, ref, path string) (tags []holt.Tag, err error) {
	err = w.Files().use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error {
		tags, err = files.Tags(path)
		return err
	})
	return tags, err
}

// Tag sets and removes tags of a file and returns what it has then.
func (w *Workspaces) Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error) {
	return once(ctx, w.Files(), "tag", key, []any{ref, spec}, func(ctx context.Context) (tags []holt.Tag, err error) {
		err = w.Files().use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error {
			tags, err = files.Tag(spec)
			return err
		})
		return tags, err
	})
}

// SetQuota bounds a workspace from now on; the zero quota is none.
func (w *Workspaces) SetQuota(ctx context.Context, ref string, q holt.Quota) (holt.Workspace, error) {
	if q.Bytes < 0 || q.Files < 0 {
		return holt.Workspace{}, badQuota()
	}
	r, err := w.table.find(ctx, ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	if err := w.guests.Bounded(ctx, r.id, q.Bytes); err != nil {
		return holt.Workspace{}, err
	}
	if err := w.table.write(ctx, `UPDATE workspace SET max_bytes = ?, max_files = ? WHERE id = ?`, q.Bytes, q.Files, r.id); err != nil {
		return holt.Workspace{}, err
	}
	if err := w.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error { ws.SetQuota(q); return nil }); err != nil {
		return holt.Workspace{}, err
	}
	return w.Get(ctx, ref)
}

func badQuota() error {
	return holt.Errorf(holt.InvalidArgument, "a quota cannot be below zero").WithHint("0 is no bound")
}
