package workspaces

import (
	"context"
	"io"
	"time"

	"holt"
	"holt/internal/store/parcel"
	"holt/internal/workspace"
)

// Import unpacks a parcel into a workspace, which may be mounted. File watchers
// in a computer do not see the change.
//
// Errors: those of [workspace.Workspace.Import]; their detail is the report of
// what was imported.
func (s *Store) Import(ctx context.Context, ref string, spec holt.ImportSpec, in io.Reader) (report holt.TransferReport, err error) {
	began := time.Now()
	r, err := parcel.NewReader(in)
	if err != nil {
		return report, holt.Errorf(holt.InvalidArgument, "import: %w", err)
	}
	err = s.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		defer s.open.kernels.settle(ctx, ws)
		defer ws.BeginDirectChange()()
		report, err = ws.Import(ctx, r, workspace.ImportSpec{
			Path: spec.Path, Writer: WriterOf(ctx), UID: agentUID, GID: agentUID, Owner: spec.Owner, Devices: spec.Devices, SetID: spec.SetID,
			Changed: s.open.kernels.changed(ws),
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

// Export writes a directory of a workspace as a parcel. After an error the parcel
// has no end mark, so a reader notices that it is incomplete.
func (s *Store) Export(ctx context.Context, ref string, spec holt.ExportSpec, out io.Writer) error {
	return s.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		total, at, err := s.measure(ctx, ws, spec)
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

// measure returns the size of an export, and the checkpoint that it is of; nil is
// the present. The size of a checkpoint is that of the whole workspace.
func (s *Store) measure(ctx context.Context, ws *workspace.Workspace, spec holt.ExportSpec) (parcel.Totals, *workspace.View, error) {
	if spec.At == "" || spec.At == holt.Live {
		all, err := ws.Usage(ctx, spec.Path, 0)
		if err != nil {
			return parcel.Totals{}, nil, err
		}
		return parcel.Totals{Entries: all[0].Files + all[0].Dirs, Bytes: all[0].Allocated}, nil, nil
	}
	at, err := ws.At(spec.At)
	if err == nil {
		_, err = (workspace.Files{Tree: ws.Tree(), At: at}).List(spec.Path, holt.PageSpec{Limit: 1}) // an error is returned before the first byte is written
	}
	if err != nil {
		return parcel.Totals{}, nil, err
	}
	c := at.Checkpoint()
	return parcel.Totals{Entries: c.Files, Bytes: c.Bytes}, at, nil
}

// Usage returns the size of a directory and of its subdirectories, down to depth levels.
func (s *Store) Usage(ctx context.Context, ref, path string, depth int) (list []holt.Usage, err error) {
	err = s.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error {
		list, err = ws.Usage(ctx, path, depth)
		return err
	})
	return list, err
}

// Tags returns the tags of a file.
func (s *Store) Tags(ctx context.Context, ref, path string) (tags []holt.Tag, err error) {
	err = s.Files().use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error {
		tags, err = files.Tags(path)
		return err
	})
	return tags, err
}

// Tag sets and removes tags of a file and returns its tags.
func (s *Store) Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error) {
	return once(ctx, s.Files(), "tag", key, []any{ref, spec}, func(ctx context.Context) (tags []holt.Tag, err error) {
		err = s.Files().use(ctx, ref, "", func(ctx context.Context, files workspace.Files) error {
			tags, err = files.Tag(spec)
			return err
		})
		return tags, err
	})
}

// SetQuota changes the quota of a workspace; the zero quota means no bound.
func (s *Store) SetQuota(ctx context.Context, ref string, q holt.Quota) (holt.Workspace, error) {
	if q.Bytes < 0 || q.Files < 0 {
		return holt.Workspace{}, badQuota()
	}
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	if s.guests != nil {
		if err := s.guests.Bounded(ctx, r.id, q.Bytes); err != nil {
			return holt.Workspace{}, err
		}
	}
	if err := s.table.write(ctx, `UPDATE workspace SET max_bytes = ?, max_files = ? WHERE id = ?`, q.Bytes, q.Files, r.id); err != nil {
		return holt.Workspace{}, err
	}
	if err := s.use(ctx, ref, func(ctx context.Context, ws *workspace.Workspace) error { ws.SetQuota(q); return nil }); err != nil {
		return holt.Workspace{}, err
	}
	return s.Get(ctx, ref)
}

func badQuota() error {
	return holt.Errorf(holt.InvalidArgument, "invalid quota: it is negative").WithHint("use 0 for no bound")
}
