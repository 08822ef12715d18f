package authz

import (
	"context"
	"io"

	"holt"
)

// workspaces is [httpapi.Workspaces].
type workspaces struct{ w *warden }

func (n workspaces) Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.Workspace{}, err
	}
	return n.w.n.Workspaces.Create(ctx, spec, key)
}

// told leaves out what is the host's.
func told(ctx context.Context, ws holt.Workspace, err error) (holt.Workspace, error) {
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		ws.Mounts = nil
	}
	return ws, err
}

func (n workspaces) Get(ctx context.Context, ref string) (holt.Workspace, error) {
	if err := n.w.any(ctx, ref); err != nil {
		return holt.Workspace{}, err
	}
	ws, err := n.w.n.Workspaces.Get(ctx, ref)
	return told(ctx, ws, err)
}

// any is asked by what shows that a workspace is there, to who covers any part of it.
func (w *warden) any(ctx context.Context, ref string) error {
	err := w.workspace(ctx, ref, look)
	a, _ := holt.ActorOf(ctx)
	if holt.CodeOf(err) != holt.Forbidden || a.Token == "" || !a.Rights.User("agent") {
		return err
	}
	for _, s := range a.Rights.Workspaces {
		if ws, lost := w.n.Workspaces.Get(ctx, ref); lost == nil && ws.ID == s.Workspace {
			return nil
		}
	}
	return err
}

func (n workspaces) List(ctx context.Context) ([]holt.Workspace, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Computer != "" {
		return nil, denied(a)
	}
	list, err := n.w.n.Workspaces.List(ctx)
	if err != nil {
		return nil, err
	}
	kept := []holt.Workspace{}
	for _, ws := range list {
		if a.Token != "" && a.Rights.Narrow() && n.w.any(ctx, string(ws.ID)) != nil {
			continue
		}
		ws, _ = told(ctx, ws, nil)
		kept = append(kept, ws)
	}
	return kept, nil
}

func (n workspaces) Delete(ctx context.Context, ref, key string) error {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return err
	}
	return n.w.n.Workspaces.Delete(ctx, ref, key)
}

func (n workspaces) Check(ctx context.Context, ref string) (holt.CheckReport, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return holt.CheckReport{}, err
	}
	return n.w.n.Workspaces.Check(ctx, ref)
}

func (n workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (holt.QueryResult, error) {
	for _, one := range append([]string{ref}, q.Also...) {
		if err := n.w.workspace(ctx, one, look); err != nil {
			return holt.QueryResult{}, err
		}
	}
	if a, _ := holt.ActorOf(ctx); q.Forks && a.Token != "" && a.Rights.Narrow() { // which are others
		return holt.QueryResult{}, denied(a)
	}
	return n.w.n.Workspaces.Query(ctx, ref, q)
}

func (n workspaces) Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error) {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.Workspace{}, err
	}
	ws, err := n.w.n.Workspaces.Update(ctx, ref, to, key)
	return told(ctx, ws, err)
}

// Mounts are the host's.
func (n workspaces) Mounts(ctx context.Context) ([]holt.HostMount, error) {
	if err := n.w.admin(ctx); err != nil {
		return nil, err
	}
	return n.w.n.Workspaces.Mounts(ctx)
}

// Mount is on the host.
func (n workspaces) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	if err := n.w.admin(ctx); err != nil {
		return holt.Mount{}, err
	}
	return n.w.n.Workspaces.Mount(ctx, ref, spec, key)
}

func (n workspaces) Unmount(ctx context.Context, dir, key string) error {
	if err := n.w.admin(ctx); err != nil {
		return err
	}
	return n.w.n.Workspaces.Unmount(ctx, dir, key)
}

func (n workspaces) Import(ctx context.Context, ref string, spec holt.ImportSpec, r io.Reader) (holt.TransferReport, error) {
	if a, _ := holt.ActorOf(ctx); a.Token != "" && (spec.Owner || spec.SetID || spec.Devices) && !a.Rights.User("root") {
		return holt.TransferReport{}, denied(a)
	}
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.TransferReport{}, err
	}
	return n.w.n.Workspaces.Import(ctx, ref, spec, r)
}

func (n workspaces) Export(ctx context.Context, ref string, spec holt.ExportSpec, out io.Writer) error {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return err
	}
	return n.w.n.Workspaces.Export(ctx, ref, spec, out)
}

func (n workspaces) Usage(ctx context.Context, ref, path string, depth int) ([]holt.Usage, error) {
	if err := n.w.workspace(ctx, ref, look); err != nil {
		return nil, err
	}
	return n.w.n.Workspaces.Usage(ctx, ref, path, depth)
}

func (n workspaces) Tags(ctx context.Context, ref, path string) ([]holt.Tag, error) {
	ctx, err := n.w.files(ctx, ref, path, look)
	if err != nil {
		return nil, err
	}
	return n.w.n.Workspaces.Tags(ctx, ref, path)
}

func (n workspaces) Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error) {
	ctx, err := n.w.files(ctx, ref, string(spec.Path), change)
	if err != nil {
		return nil, err
	}
	return n.w.n.Workspaces.Tag(ctx, ref, spec, key)
}

// SetQuota is about what the tenant may have.
func (n workspaces) SetQuota(ctx context.Context, ref string, q holt.Quota) (holt.Workspace, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.Workspace{}, err
	}
	ws, err := n.w.n.Workspaces.SetQuota(ctx, ref, q)
	return told(ctx, ws, err)
}

func (n workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	if err := n.w.tenant(ctx, change); err != nil {
		return holt.Forked{}, err
	}
	return n.w.n.Workspaces.Fork(ctx, ref, spec, key)
}

func (n workspaces) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error) {
	if err := n.w.workspace(ctx, ref, change); err != nil {
		return holt.MergeReport{}, err
	}
	if err := n.w.workspace(ctx, spec.From, look); err != nil {
		return holt.MergeReport{}, err
	}
	return n.w.n.Workspaces.Merge(ctx, ref, spec, key)
}

// workspaceFiles is [httpapi.Files] of workspaces.
type workspaceFiles struct{ w *warden }

func (n workspaceFiles) Stat(ctx context.Context, ref, path string) (holt.FileInfo, error) {
	ctx, err := n.w.files(ctx, ref, path, look)
	if err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.WorkspaceFiles.Stat(ctx, ref, path)
}

func (n workspaceFiles) List(ctx context.Context, ref, path string, page holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	ctx, err := n.w.files(ctx, ref, path, look)
	if err != nil {
		return holt.Page[holt.FileInfo]{}, err
	}
	return n.w.n.WorkspaceFiles.List(ctx, ref, path, page)
}

func (n workspaceFiles) Read(ctx context.Context, ref, path string, off, size int64, out io.Writer) error {
	ctx, err := n.w.files(ctx, ref, path, look)
	if err != nil {
		return err
	}
	return n.w.n.WorkspaceFiles.Read(ctx, ref, path, off, size, out)
}

func (n workspaceFiles) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	ctx, err := n.w.owned(ctx, ref, path, spec.User)
	if err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.WorkspaceFiles.Write(ctx, ref, path, spec, r)
}

func (n workspaceFiles) Mkdir(ctx context.Context, ref string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	ctx, err := n.w.owned(ctx, ref, string(spec.Path), spec.User)
	if err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.WorkspaceFiles.Mkdir(ctx, ref, spec, key)
}

// Symlink is not for who cannot leave a directory: it would lead others out of it.
func (n workspaceFiles) Symlink(ctx context.Context, ref string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	ctx, err := n.w.owned(ctx, ref, string(spec.Path), spec.User)
	if a, _ := holt.ActorOf(ctx); err == nil && holt.BeneathOf(ctx) != "" {
		err = denied(a)
	}
	if err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.WorkspaceFiles.Symlink(ctx, ref, spec, key)
}

func (n workspaceFiles) Remove(ctx context.Context, ref, path string, recursive bool, key string) error {
	ctx, err := n.w.files(ctx, ref, path, change)
	if err != nil {
		return err
	}
	return n.w.n.WorkspaceFiles.Remove(ctx, ref, path, recursive, key)
}

// Rename is within one of the directories that are covered.
func (n workspaceFiles) Rename(ctx context.Context, ref string, spec holt.RenameSpec, key string) error {
	from, err := n.w.files(ctx, ref, string(spec.From), change)
	if err != nil {
		return err
	}
	to, err := n.w.files(ctx, ref, string(spec.To), change)
	if err != nil {
		return err
	}
	if a, _ := holt.ActorOf(ctx); holt.BeneathOf(from) != holt.BeneathOf(to) {
		return denied(a)
	}
	return n.w.n.WorkspaceFiles.Rename(to, ref, spec, key)
}
