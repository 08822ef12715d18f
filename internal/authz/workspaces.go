package authz

import (
	"context"

	"holt"
	"holt/internal/api"
)

// workspacePart checks that the caller covers a part of a workspace, and so may see that it exists.
func (g *guard) workspacePart(ctx context.Context, ref string) error {
	err := g.workspace(ctx, ref, read)
	a, _ := holt.ActorOf(ctx)
	if holt.CodeOf(err) != holt.Forbidden || a.Token == "" || !a.Rights.User("agent") {
		return err
	}
	for _, s := range a.Rights.Workspaces {
		if ws, lost := g.n.Workspaces.Get(ctx, ref); lost == nil && ws.ID == s.Workspace {
			return nil
		}
	}
	return err
}

func (g *guard) seesWorkspace(ctx context.Context, ws holt.Workspace) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || !a.Rights.Narrow() {
		return nil
	}
	if g.workspacePart(ctx, string(ws.ID)) != nil {
		return forbidden(a)
	}
	return nil
}

// ownWorkspace is workspace, which the computer of the workspace may call too.
func (g *guard) ownWorkspace(ctx context.Context, ref string, op operation) error {
	a, _ := holt.ActorOf(ctx)
	if a.Computer == "" {
		return g.workspace(ctx, ref, op)
	}
	if c, err := g.n.Computers.Get(ctx, string(a.Computer)); err != nil || c.Workspace != ref {
		return forbidden(a)
	}
	return nil
}

// query needs a right to the whole of each workspace. Forks are other workspaces, which a narrow token may not cover.
func (g *guard) query(ctx context.Context, in *api.WorkspaceQuery) error {
	for _, one := range append([]string{in.Workspace}, in.Body.Also...) {
		if err := g.workspace(ctx, one, read); err != nil {
			return err
		}
	}
	if a, _ := holt.ActorOf(ctx); in.Body.Forks && a.Token != "" && a.Rights.Narrow() {
		return forbidden(a)
	}
	return nil
}

func (g *guard) merge(ctx context.Context, in *api.WorkspaceMerge) error {
	if err := g.workspace(ctx, in.Workspace, write); err != nil {
		return err
	}
	return g.workspace(ctx, in.Body.From, read)
}

// imports needs the Linux user root for owners, set-id bits and devices.
func (g *guard) imports(ctx context.Context, in *api.WorkspaceImport) error {
	if a, _ := holt.ActorOf(ctx); a.Token != "" && (in.Owner || in.SetID || in.Devices) && !a.Rights.User("root") {
		return forbidden(a)
	}
	return g.workspace(ctx, in.Workspace, write)
}

// symlink refuses callers that are confined to a directory: a link can lead others out of it.
func (g *guard) symlink(ctx context.Context, in *api.MakeLink) (context.Context, error) {
	ctx, err := g.filesAs(ctx, in.Workspace, string(in.Body.Path), in.Body.User)
	if a, _ := holt.ActorOf(ctx); err == nil && holt.BeneathOf(ctx) != "" {
		err = forbidden(a)
	}
	return ctx, err
}

// rename needs both paths in the same directory of the token's scopes.
func (g *guard) rename(ctx context.Context, in *api.FileRename) (context.Context, error) {
	from, err := g.files(ctx, in.Workspace, string(in.Body.From), write)
	if err != nil {
		return ctx, err
	}
	to, err := g.files(ctx, in.Workspace, string(in.Body.To), write)
	if err != nil {
		return ctx, err
	}
	if a, _ := holt.ActorOf(ctx); holt.BeneathOf(from) != holt.BeneathOf(to) {
		return ctx, forbidden(a)
	}
	return to, nil
}
