package client

import (
	"context"
	"net/http"
	"net/url"

	"holt"
)

// Workspaces are the durable file systems.
type Workspaces struct{ c *Client }

// Create makes an empty workspace.
func (n Workspaces) Create(ctx context.Context, spec holt.WorkspaceSpec, key string) (out holt.Workspace, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a workspace by name or id.
func (n Workspaces) Get(ctx context.Context, ref string) (out holt.Workspace, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("workspaces", ref)}, &out)
	return out, err
}

// List returns all workspaces in the order of their names.
func (n Workspaces) List(ctx context.Context) ([]holt.Workspace, error) {
	return list[holt.Workspace](ctx, n.c, join("workspaces"), nil)
}

// Fork makes workspaces of one, or of a checkpoint of it.
func (n Workspaces) Fork(ctx context.Context, ref string, spec holt.ForkSpec, key string) (out holt.Forked, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "fork"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Delete removes a workspace with everything in it.
func (n Workspaces) Delete(ctx context.Context, ref, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("workspaces", ref), keyed: true, key: key}, nil)
}

// Check recomputes everything the workspace says about itself.
func (n Workspaces) Check(ctx context.Context, ref string) (out holt.CheckReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "check")}, &out)
	return out, err
}

// Query asks a question in SQL.
func (n Workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (out holt.QueryResult, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "query"), body: q}, &out)
	return out, err
}

// Update renames a workspace.
func (n Workspaces) Update(ctx context.Context, ref string, to holt.WorkspaceUpdate, key string) (out holt.Workspace, err error) {
	err = n.c.json(ctx, call{method: http.MethodPatch, path: join("workspaces", ref), body: to, keyed: true, key: key}, &out)
	return out, err
}

// Mounts returns what is mounted on the daemon's host, by directory.
func (n Workspaces) Mounts(ctx context.Context) ([]holt.HostMount, error) {
	return list[holt.HostMount](ctx, n.c, join("mounts"), nil)
}

// Mount mounts a workspace on the daemon's host.
func (n Workspaces) Mount(ctx context.Context, ref string, spec holt.MountSpec, key string) (out holt.Mount, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "mounts"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Unmount ends the mount at dir, whichever workspace it shows.
func (n Workspaces) Unmount(ctx context.Context, dir, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("mounts"), query: url.Values{"dir": {dir}}, keyed: true, key: key}, nil)
}

// Images are the built templates.
type Images struct{ c *Client }

// List returns every template known, built or not, in the order of their names.
func (n Images) List(ctx context.Context) ([]holt.Image, error) {
	return list[holt.Image](ctx, n.c, join("images"), nil)
}

// Boot boots an image in a shape, waits until everything is started, and keeps that for new
// computers to go on from; it returns at once what is kept already. ref is a template or a digest.
func (n Images) Boot(ctx context.Context, ref string, shape holt.Shape, key string) (out holt.Image, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("images", ref, "boot"), body: shape, keyed: true, key: key}, &out)
	return out, err
}

// Daemon is the process that serves the API.
type Daemon struct{ c *Client }

// Health says that the daemon answers, and what it is.
func (n Daemon) Health(ctx context.Context) (out holt.Health, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("health")}, &out)
	return out, err
}

// Doctor examines the daemon's host.
func (n Daemon) Doctor(ctx context.Context) ([]holt.Finding, error) {
	var page holt.Page[holt.Finding]
	err := n.c.json(ctx, call{method: http.MethodGet, path: join("doctor")}, &page)
	return page.Items, err
}

// Down ends the daemon, its mounts and, unless kept, its computers.
func (n Daemon) Down(ctx context.Context, spec holt.DownSpec, key string) (out holt.DownReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("down"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Merge brings changes of another workspace to this one.
func (n Workspaces) Merge(ctx context.Context, ref string, spec holt.MergeSpec, key string) (out holt.MergeReport, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "merge"), body: spec, keyed: true, key: key}, &out)
	return out, err
}
