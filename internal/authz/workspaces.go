package authz

import (
	"context"

	"holt"
	"holt/internal/api"
)

// any is the right to see that a workspace exists: that of callers that cover any part of it.
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

func (w *warden) seesWorkspace(ctx context.Context, ws holt.Workspace) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || !a.Rights.Narrow() {
		return nil
	}
	if w.any(ctx, string(ws.ID)) != nil {
		return denied(a)
	}
	return nil
}

// ours is the right to a workspace; the computer that has the workspace may do this too.
func (w *warden) ours(ctx context.Context, ref string, u use) error {
	a, _ := holt.ActorOf(ctx)
	if a.Computer == "" {
		return w.workspace(ctx, ref, u)
	}
	if c, err := w.n.Computers.Get(ctx, string(a.Computer)); err != nil || c.Workspace != ref {
		return denied(a)
	}
	return nil
}

// query needs all of each workspace. Forks are other workspaces, which a narrow token may not cover.
func (w *warden) query(ctx context.Context, in *api.WorkspaceQuery) error {
	for _, one := range append([]string{in.Workspace}, in.Body.Also...) {
		if err := w.workspace(ctx, one, look); err != nil {
			return err
		}
	}
	if a, _ := holt.ActorOf(ctx); in.Body.Forks && a.Token != "" && a.Rights.Narrow() {
		return denied(a)
	}
	return nil
}

func (w *warden) merge(ctx context.Context, in *api.WorkspaceMerge) error {
	if err := w.workspace(ctx, in.Workspace, change); err != nil {
		return err
	}
	return w.workspace(ctx, in.Body.From, look)
}

// imports needs root for owners, set-id bits and devices.
func (w *warden) imports(ctx context.Context, in *api.WorkspaceImport) error {
	if a, _ := holt.ActorOf(ctx); a.Token != "" && (in.Owner || in.SetID || in.Devices) && !a.Rights.User("root") {
		return denied(a)
	}
	return w.workspace(ctx, in.Workspace, change)
}

// symlink is refused to callers that are confined to a directory: the link would lead others out of it.
func (w *warden) symlink(ctx context.Context, in *api.MakeLink) (context.Context, error) {
	ctx, err := w.owned(ctx, in.Workspace, string(in.Body.Path), in.Body.User)
	if a, _ := holt.ActorOf(ctx); err == nil && holt.BeneathOf(ctx) != "" {
		err = denied(a)
	}
	return ctx, err
}

// rename must stay within one of the directories that are covered.
func (w *warden) rename(ctx context.Context, in *api.FileRename) (context.Context, error) {
	from, err := w.files(ctx, in.Workspace, string(in.Body.From), change)
	if err != nil {
		return ctx, err
	}
	to, err := w.files(ctx, in.Workspace, string(in.Body.To), change)
	if err != nil {
		return ctx, err
	}
	if a, _ := holt.ActorOf(ctx); holt.BeneathOf(from) != holt.BeneathOf(to) {
		return ctx, denied(a)
	}
	return to, nil
}
