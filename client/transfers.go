package client

import (
	"context"
	"io"

	"holt"
	"holt/internal/api"
)

// Import puts a parcel into a workspace. It is never sent twice.
func (n Workspaces) Import(ctx context.Context, ref string, spec holt.ImportSpec, r io.Reader) (holt.TransferReport, error) {
	return send(ctx, n.c, api.ImportWorkspace, api.WorkspaceImport{api.OneWorkspace{ref}, api.Unasked{spec.Devices, spec.SetID}, spec.Path, spec.Owner}, r)
}

// Export writes a directory of a workspace to w, as a parcel. One that was cut
// off has no end.
func (n Workspaces) Export(ctx context.Context, ref string, spec holt.ExportSpec, w io.Writer) error {
	return n.c.copyTo(ctx, callOf(api.ExportWorkspace, api.WorkspaceExport{api.OneWorkspace{ref}, api.Unasked{spec.Devices, spec.SetID}, spec.Path, spec.At}), w)
}

// Usage adds up a directory and, down to depth levels, those in it.
func (n Workspaces) Usage(ctx context.Context, ref, path string, depth int) ([]holt.Usage, error) {
	return doList(ctx, n.c, api.UsageOfWorkspace, api.UsageOf{OneWorkspace: api.OneWorkspace{ref}, Path: path, Depth: depth})
}

// Tags returns the tags of a file in the order of their names.
func (n Workspaces) Tags(ctx context.Context, ref, path string) ([]holt.Tag, error) {
	return doList(ctx, n.c, api.ListTags, api.TagsOf{OneWorkspace: api.OneWorkspace{ref}, Path: path})
}

// Tag sets and removes tags of a file and returns what it has then.
func (n Workspaces) Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) ([]holt.Tag, error) {
	return do(ctx, n.c, api.TagFile, api.WorkspaceTag{workspaceBody(ref, key, spec)})
}

// SetQuota bounds a workspace from now on; the zero quota is none.
func (n Workspaces) SetQuota(ctx context.Context, ref string, q holt.Quota) (holt.Workspace, error) {
	return do(ctx, n.c, api.SetQuota, api.WorkspaceQuota{api.OneWorkspace{ref}, q})
}
