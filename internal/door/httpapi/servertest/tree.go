package servertest

import (
	"context"
	"io"
	"path/filepath"

	"holt"
	"holt/internal/store/parcel"
	"holt/internal/workspace"
)

// tree returns the real workspace behind one.
func (m *Memory) tree(ref string) (*workspace.Workspace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.treeLocked(ref)
}

func (m *Memory) treeLocked(ref string) (*workspace.Workspace, error) {
	w, err := m.workspace(ref)
	if err != nil {
		return nil, err
	}
	if t := m.trees[w.ID]; t != nil {
		return t, nil
	}
	t, err := workspace.Create(filepath.Join(m.dir, string(w.ID)), workspace.Options{Quota: w.Quota})
	if err == nil {
		m.trees[w.ID] = t
	}
	return t, err
}

func filesOf(t *workspace.Workspace) workspace.Files {
	return workspace.Files{Tree: t.Tree(), Caller: workspace.Caller{UID: 1000, GID: 1000}}
}

type workspaceFiles struct{ m *Memory }

// filesAt returns the files of a workspace, as they are or were.
func (m *Memory) filesAt(ref string) (workspace.Files, error) {
	name, checkpoint := holt.CutCheckpoint(ref)
	t, err := m.tree(name)
	if err != nil {
		return workspace.Files{}, err
	}
	files := filesOf(t)
	if checkpoint != "" {
		files.At, err = t.At(checkpoint)
	}
	return files, err
}

func (n workspaceFiles) Stat(_ context.Context, ref, path string) (holt.FileInfo, error) {
	f, err := n.m.filesAt(ref)
	if err != nil {
		return holt.FileInfo{}, err
	}
	return f.Stat(path)
}

func (n workspaceFiles) List(_ context.Context, ref, path string, spec holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	f, err := n.m.filesAt(ref)
	if err != nil {
		return holt.Page[holt.FileInfo]{}, err
	}
	return f.List(path, spec)
}

func (n workspaceFiles) Read(ctx context.Context, ref, path string, off, length int64, w io.Writer) error {
	f, err := n.m.filesAt(ref)
	if err != nil {
		return err
	}
	return f.Read(ctx, path, off, length, w)
}

func (n workspaceFiles) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	t, err := n.m.tree(ref)
	if err != nil {
		return holt.FileInfo{}, err
	}
	return filesOf(t).Write(ctx, path, spec, r)
}

func (n workspaceFiles) Mkdir(_ context.Context, ref string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	return once(n.m, key, []any{"workspace mkdir", ref, spec}, func() (holt.FileInfo, error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return holt.FileInfo{}, err
		}
		return filesOf(t).Mkdir(string(spec.Path), spec.Mode, spec.Parents)
	})
}

func (n workspaceFiles) Symlink(_ context.Context, ref string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	return once(n.m, key, []any{"workspace symlink", ref, spec}, func() (holt.FileInfo, error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return holt.FileInfo{}, err
		}
		return filesOf(t).Symlink(string(spec.Path), string(spec.Target))
	})
}

func (n workspaceFiles) Remove(ctx context.Context, ref, path string, recursive bool, key string) error {
	_, err := once(n.m, key, []any{"workspace remove", ref, path, recursive}, func() (struct{}, error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, filesOf(t).Remove(ctx, path, recursive)
	})
	return err
}

func (n workspaceFiles) Rename(_ context.Context, ref string, spec holt.RenameSpec, key string) error {
	_, err := once(n.m, key, []any{"workspace rename", ref, spec}, func() (struct{}, error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, filesOf(t).Rename(string(spec.From), string(spec.To))
	})
	return err
}

func (n workspaces) Import(ctx context.Context, ref string, spec holt.ImportSpec, in io.Reader) (holt.TransferReport, error) {
	t, err := n.m.tree(ref)
	if err != nil {
		return holt.TransferReport{}, err
	}
	r, err := parcel.NewReader(in)
	if err != nil {
		return holt.TransferReport{}, holt.Errorf(holt.InvalidArgument, "%w", err)
	}
	report, err := t.Import(ctx, r, workspace.ImportSpec{Path: spec.Path, UID: 1000, GID: 1000, Owner: spec.Owner, Devices: spec.Devices, SetID: spec.SetID})
	if err != nil {
		e := *holt.AsError(err)
		e.Detail = report
		return report, &e
	}
	return report, nil
}

func (n workspaces) Export(ctx context.Context, ref string, spec holt.ExportSpec, out io.Writer) error {
	t, err := n.m.tree(ref)
	if err != nil {
		return err
	}
	files, err := n.m.filesAt(holt.AtCheckpoint(ref, spec.At))
	if err != nil {
		return err
	}
	if _, err := files.List(spec.Path, holt.PageSpec{Limit: 1}); err != nil {
		return err
	}
	w, err := parcel.NewWriter(out, parcel.Totals{})
	if err != nil {
		return err
	}
	if _, err := t.Export(ctx, w, workspace.ExportSpec{Path: spec.Path, At: files.At, Devices: spec.Devices, SetID: spec.SetID}); err != nil {
		return err
	}
	return w.Close()
}

func (n workspaces) Usage(ctx context.Context, ref, path string, depth int) ([]holt.Usage, error) {
	t, err := n.m.tree(ref)
	if err != nil {
		return nil, err
	}
	return t.Usage(ctx, path, depth)
}

func (n workspaces) Tags(_ context.Context, ref, path string) ([]holt.Tag, error) {
	t, err := n.m.tree(ref)
	if err != nil {
		return nil, err
	}
	return filesOf(t).Tags(path)
}

func (n workspaces) Tag(_ context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error) {
	return once(n.m, key, []any{"tag", ref, spec}, func() ([]holt.Tag, error) {
		t, err := n.m.treeLocked(ref)
		if err != nil {
			return nil, err
		}
		return filesOf(t).Tag(spec)
	})
}

func (n workspaces) SetQuota(_ context.Context, ref string, q holt.Quota) (holt.Workspace, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	t, err := n.m.treeLocked(ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	t.SetQuota(q)
	w, err := n.m.workspace(ref)
	if err != nil {
		return holt.Workspace{}, err
	}
	w.Quota = q
	return *w, nil
}
