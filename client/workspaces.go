package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Workspaces are the durable file systems.
type Workspaces struct{ c *Client }

func workspaceBody[T any](ref, key string, body T) api.WorkspaceBody[T] {
	return api.WorkspaceBody[T]{api.OneWorkspace{ref}, api.Keyed{key}, body}
}

// Create makes an empty workspace.
func (n Workspaces) Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (holt.Workspace, error) {
	return do(ctx, n.c, api.CreateWorkspace, api.Body[holt.WorkspaceSpec]{api.Keyed{key}, spec})
}

// Get returns a workspace by name or id.
func (n Workspaces) Get(ctx context.Context, ref string) (holt.Workspace, error) {
	return do(ctx, n.c, api.GetWorkspace, api.OneWorkspace{ref})
}

// List returns all workspaces in the order of their names.
func (n Workspaces) List(ctx context.Context) ([]holt.Workspace, error) {
	return doList(ctx, n.c, api.ListWorkspaces, api.Paging{})
}

// Fork makes workspaces of one, or of a checkpoint of it.
func (n Workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (holt.Forked, error) {
	return do(ctx, n.c, api.ForkWorkspace, workspaceBody(ref, key, spec))
}

// Merge brings changes of another workspace to this one.
func (n Workspaces) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (holt.MergeReport, error) {
	return do(ctx, n.c, api.MergeWorkspace, api.WorkspaceMerge{workspaceBody(ref, key, spec)})
}

// Delete removes a workspace with everything in it.
func (n Workspaces) Delete(ctx context.Context, ref, key string) error {
	return doNone(ctx, n.c, api.DeleteWorkspace, api.WorkspaceKeyed{api.OneWorkspace{ref}, api.Keyed{key}})
}

// Check recomputes everything the workspace says about itself.
func (n Workspaces) Check(ctx context.Context, ref string) (holt.CheckReport, error) {
	return do(ctx, n.c, api.CheckWorkspace, api.OneWorkspace{ref})
}

// Query asks a question in SQL.
func (n Workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (holt.QueryResult, error) {
	return do(ctx, n.c, api.QueryWorkspace, api.WorkspaceQuery{ref, q})
}

// Update renames a workspace.
func (n Workspaces) Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (holt.Workspace, error) {
	return do(ctx, n.c, api.UpdateWorkspace, workspaceBody(ref, key, to))
}

// Mounts returns what is mounted on the daemon's host, by directory.
func (n Workspaces) Mounts(ctx context.Context) ([]holt.HostMount, error) {
	return doList(ctx, n.c, api.ListMounts, api.Paging{})
}

// Mount mounts a workspace on the daemon's host.
func (n Workspaces) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (holt.Mount, error) {
	return do(ctx, n.c, api.MountWorkspace, api.WorkspaceMount{workspaceBody(ref, key, spec)})
}

// Unmount ends the mount at dir, whichever workspace it shows.
func (n Workspaces) Unmount(ctx context.Context, dir, key string) error {
	return doNone(ctx, n.c, api.UnmountWorkspace, api.Unmount{api.Keyed{key}, dir})
}

// Images are the built templates.
type Images struct{ c *Client }

// List returns every template known, built or not, in the order of their names.
func (n Images) List(ctx context.Context) ([]holt.Image, error) {
	return doList(ctx, n.c, api.ListImages, api.Paging{})
}

// Boot boots an image in a shape, waits until everything is started, and keeps the booted machine for new
// computers to start from; it returns at once if there is one already. ref is a template or a digest.
func (n Images) Boot(ctx context.Context, ref string, shape holt.Shape, key string) (holt.Image, error) {
	return do(ctx, n.c, api.BootImage, api.BootOf{api.Keyed{key}, ref, &shape})
}

// Daemon is the process that serves the API.
type Daemon struct{ c *Client }

// Health says that the daemon answers, and what it is.
func (n Daemon) Health(ctx context.Context) (holt.Health, error) {
	return do(ctx, n.c, api.GetHealth, api.None{})
}

// Doctor examines the daemon's host.
func (n Daemon) Doctor(ctx context.Context) ([]holt.Finding, error) {
	page, err := do(ctx, n.c, api.GetDoctor, api.None{})
	return page.Items, err
}

// Down ends the daemon, its mounts and, unless kept, its computers.
func (n Daemon) Down(ctx context.Context, spec holt.DownSpec, key string) (holt.DownReport, error) {
	return do(ctx, n.c, api.EndDaemon, api.Down{api.Keyed{key}, &spec})
}
