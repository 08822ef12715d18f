package httpapi

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) workspaces() {
	n := s.opt.Nouns.Workspaces
	bind(s, api.CreateWorkspace, func(ctx context.Context, in *api.Body[holt.WorkspaceSpec]) (holt.Workspace, error) {
		if _, err := holt.ParseName(in.Body.Name); err != nil {
			return holt.Workspace{}, err
		}
		return n.Create(ctx, in.Body, in.Key)
	})
	bindList(s, api.ListWorkspaces, func(ctx context.Context, _ *api.Paging) ([]holt.Workspace, error) {
		all, err := n.List(ctx)
		shown := make([]holt.Workspace, len(all)) // the noun's list may be shared
		for i, w := range all {
			shown[i], _ = shownTo(ctx, w, nil)
		}
		return shown, err
	})
	bind(s, api.GetWorkspace, func(ctx context.Context, in *api.OneWorkspace) (holt.Workspace, error) {
		w, err := n.Get(ctx, in.Workspace)
		return shownTo(ctx, w, err)
	})
	bind(s, api.UpdateWorkspace, func(ctx context.Context, in *api.WorkspaceBody[holt.WorkspaceUpdate]) (holt.Workspace, error) {
		w, err := n.Update(ctx, in.Workspace, in.Body, in.Key)
		return shownTo(ctx, w, err)
	})
	bind(s, api.DeleteWorkspace, func(ctx context.Context, in *api.WorkspaceKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Workspace, in.Key)
	})
	bind(s, api.CheckWorkspace, func(ctx context.Context, in *api.OneWorkspace) (holt.CheckReport, error) {
		report, err := n.Check(ctx, in.Workspace)
		report.Problems = listed(report.Problems)
		return report, err
	})
	bind(s, api.QueryWorkspace, func(ctx context.Context, in *api.WorkspaceQuery) (holt.QueryResult, error) {
		if strings.TrimSpace(in.Body.SQL) == "" {
			return holt.QueryResult{}, holt.Errorf(holt.InvalidArgument, "the query is empty").
				WithHint("for example: SELECT path, size FROM files ORDER BY size DESC LIMIT 10")
		}
		result, err := n.Query(ctx, in.Workspace, in.Body)
		result.Columns, result.Rows = listed(result.Columns), listed(result.Rows)
		return result, err
	})
	bind(s, api.ForkWorkspace, func(ctx context.Context, in *api.WorkspaceBody[holt.ForkSpec]) (holt.Forked, error) {
		if _, err := holt.ParseName(in.Body.Name); in.Body.Name != "" && err != nil {
			return holt.Forked{}, err
		}
		return n.Fork(ctx, in.Workspace, in.Body, in.Key)
	})
	bind(s, api.MergeWorkspace, func(ctx context.Context, in *api.WorkspaceMerge) (holt.MergeReport, error) {
		return n.Merge(ctx, in.Workspace, in.Body, in.Key)
	})
	bind(s, api.MountWorkspace, func(ctx context.Context, in *api.WorkspaceMount) (holt.Mount, error) {
		return n.Mount(ctx, in.Workspace, in.Body, in.Key)
	})
	bindList(s, api.ListMounts, func(ctx context.Context, _ *api.Paging) ([]holt.HostMount, error) { return n.Mounts(ctx) })
	bind(s, api.UnmountWorkspace, func(ctx context.Context, in *api.Unmount) (api.None, error) {
		return api.None{}, n.Unmount(ctx, in.Dir, in.Key)
	})
	s.transfers()
}

// shownTo leaves out the mounts on the host unless an admin asks.
func shownTo(ctx context.Context, w holt.Workspace, err error) (holt.Workspace, error) {
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		w.Mounts = nil
	}
	return w, err
}

// transfers registers calls about many files of a workspace at once.
func (s *Server) transfers() {
	n := s.opt.Nouns.Workspaces
	bind(s, api.ImportWorkspace, func(ctx context.Context, in *api.WorkspaceImport) (holt.TransferReport, error) {
		return n.Import(ctx, in.Workspace, holt.ImportSpec{Path: in.Path, Owner: in.Owner, Devices: in.Devices, SetID: in.SetID}, body(ctx))
	})
	bindStream(s, api.ExportWorkspace, func(ctx context.Context, in *api.WorkspaceExport) (*huma.StreamResponse, error) {
		return s.raw(ctx, api.ExportWorkspace.Answer.Type, func(ctx context.Context, w *rawWriter) error {
			return n.Export(ctx, in.Workspace, holt.ExportSpec{Path: in.Path, At: in.At, Devices: in.Devices, SetID: in.SetID}, w)
		}), nil
	})
	bindList(s, api.UsageOfWorkspace, func(ctx context.Context, in *api.UsageOf) ([]holt.Usage, error) {
		return n.Usage(ctx, in.Workspace, in.Path, in.Depth)
	})
	bind(s, api.SetQuota, func(ctx context.Context, in *api.WorkspaceQuota) (holt.Workspace, error) {
		w, err := n.SetQuota(ctx, in.Workspace, in.Body)
		return shownTo(ctx, w, err)
	})
	bindList(s, api.ListTags, func(ctx context.Context, in *api.TagsOf) ([]holt.Tag, error) {
		return n.Tags(ctx, in.Workspace, in.Path)
	})
	bind(s, api.TagFile, func(ctx context.Context, in *api.WorkspaceTag) ([]holt.Tag, error) {
		return n.Tag(ctx, in.Workspace, in.Body, in.Key)
	})
}
