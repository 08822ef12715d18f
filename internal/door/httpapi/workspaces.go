package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneWorkspace names a workspace in a path.
type OneWorkspace struct {
	Workspace string `path:"workspace" doc:"name or id"`
}

func (s *Server) workspaces(api huma.API) {
	const tag = "workspaces"
	nouns := s.opt.Nouns.Workspaces

	op := describe(http.MethodPost, "/v1/workspaces", "createWorkspace", tag, "Create an empty workspace")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Body holt.WorkspaceSpec
	}) (*reply[holt.Workspace], error) {
		if _, err := holt.ParseName(in.Body.Name); err != nil {
			return nil, err
		}
		w, err := nouns.Create(ctx, in.Body, in.Key)
		return &reply[holt.Workspace]{w}, err
	})

	register(api, describe(http.MethodGet, "/v1/workspaces", "listWorkspaces", tag, "List workspaces by name"),
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Workspace]], error) {
			all, err := nouns.List(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(w holt.Workspace) string { return w.Name }, *in), nil
		})

	register(api, describe(http.MethodGet, "/v1/workspaces/{workspace}", "getWorkspace", tag, "Get a workspace"),
		func(ctx context.Context, in *OneWorkspace) (*reply[holt.Workspace], error) {
			ref, err := parseRef(in.Workspace)
			if err != nil {
				return nil, err
			}
			w, err := nouns.Get(ctx, ref)
			return &reply[holt.Workspace]{w}, err
		})

	op = describe(http.MethodPatch, "/v1/workspaces/{workspace}", "updateWorkspace", tag, "Rename a workspace")
	op.Description = "Its id stays. The old name is free at once."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.WorkspaceUpdate
	}) (*reply[holt.Workspace], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		w, err := nouns.Update(ctx, ref, in.Body, in.Key)
		return &reply[holt.Workspace]{w}, err
	})

	register(api, describe(http.MethodDelete, "/v1/workspaces/{workspace}", "deleteWorkspace", tag, "Delete a workspace with everything in it"),
		func(ctx context.Context, in *struct {
			OneWorkspace
			Keyed
		}) (*noContent, error) {
			ref, err := parseRef(in.Workspace)
			if err != nil {
				return nil, err
			}
			return &noContent{}, nouns.Delete(ctx, ref, in.Key)
		})
	s.forks(api)
	s.askWorkspaces(api)
	s.transfers(api)
	s.tags(api)
	s.mounts(api)
}

func (s *Server) askWorkspaces(api huma.API) {
	const tag = "workspaces"
	nouns := s.opt.Nouns.Workspaces
	op := describe(http.MethodPost, "/v1/workspaces/{workspace}/check", "checkWorkspace", tag, "Recompute everything a workspace says about itself")
	op.Description = "It changes nothing. A workspace is clean when the report has no problems."
	register(api, op, func(ctx context.Context, in *OneWorkspace) (*reply[holt.CheckReport], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		report, err := nouns.Check(ctx, ref)
		if report.Problems == nil {
			report.Problems = []string{}
		}
		return &reply[holt.CheckReport]{report}, err
	})

	op = describe(http.MethodPost, "/v1/workspaces/{workspace}/query", "queryWorkspace", tag, "Ask a question in SQL")
	op.Description = "Read-only SQLite over the workspace as it is now, or at a checkpoint; the view files(path, dir, name, kind, size, mode, mtime, ctime, writer, run, …) is for people. " +
		"tags(path, name, value) are the attributes user.*, files_at and tags_at those of every checkpoint (by a column checkpoint), checkpoints the list, and changes('FROM', 'TO') is what a diff says. " +
		"NAME@CHECKPOINT for the workspace stands for it as it was then. With also or forks it is over several workspaces, and each of these has a column workspace. A query reads one state of each. Of a tenant two run at once, eight more wait, and what comes then is too_many."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Body holt.QuerySpec
	}) (*reply[holt.QueryResult], error) {
		ref := in.Workspace
		name, _ := holt.CutCheckpoint(ref)
		if _, err := parseRef(name); err != nil {
			return nil, err
		}
		if strings.TrimSpace(in.Body.SQL) == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "the query is empty").
				WithHint("for example: SELECT path, size FROM files ORDER BY size DESC LIMIT 10")
		}
		result, err := nouns.Query(ctx, ref, in.Body)
		if result.Columns == nil {
			result.Columns = []string{}
		}
		if result.Rows == nil {
			result.Rows = [][]any{}
		}
		return &reply[holt.QueryResult]{result}, err
	})
}

func (s *Server) mounts(api huma.API) {
	const tag = "workspaces"
	nouns := s.opt.Nouns.Workspaces
	op := describe(http.MethodPost, "/v1/workspaces/{workspace}/mounts", "mountWorkspace", tag, "Mount a workspace on the daemon's host")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.MountSpec
	}) (*reply[holt.Mount], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		if in.Body.Dir, err = parsePath(in.Body.Dir); err != nil {
			return nil, err
		}
		m, err := nouns.Mount(ctx, ref, in.Body, in.Key)
		return &reply[holt.Mount]{m}, err
	})

	op = describe(http.MethodGet, "/v1/mounts", "listMounts", tag, "List mounts on the daemon's host")
	op.Description = "Those of all tenants, by directory."
	register(api, op, func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.HostMount]], error) {
		all, err := nouns.Mounts(ctx)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(m holt.HostMount) string { return m.Dir }, *in), nil
	})

	op = describe(http.MethodDelete, "/v1/mounts", "unmountWorkspace", tag, "End a mount on the daemon's host")
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Dir string `query:"dir" required:"true" maxLength:"4096" doc:"absolute path on the daemon's host"`
	}) (*noContent, error) {
		dir, err := parsePath(in.Dir)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Unmount(ctx, dir, in.Key)
	})
}
