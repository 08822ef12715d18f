package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// flags makes a query of a path and of the flags that are set.
func flags(path string, set map[string]bool) url.Values {
	query := at(path)
	for name, on := range set {
		if on {
			query.Set(name, "true")
		}
	}
	return query
}

// Import puts a parcel into a workspace. It is never sent twice.
func (n Workspaces) Import(ctx context.Context, ref string, spec holt.ImportSpec, r io.Reader) (holt.TransferReport, error) {
	query := flags(spec.Path, map[string]bool{"owner": spec.Owner, "devices": spec.Devices, "set_id": spec.SetID})
	body := struct{ io.Reader }{r} // a failed attempt closes what it can
	return sent(ctx, n.c, func() (out holt.TransferReport, err error) {
		err = n.c.once(ctx, call{method: http.MethodPut, path: join("workspaces", ref, "import"), query: query, raw: body}, &out)
		return out, err
	})
}

// Export writes a directory of a workspace to w, as a parcel. One that was cut
// off has no end.
func (n Workspaces) Export(ctx context.Context, ref string, spec holt.ExportSpec, w io.Writer) error {
	query := flags(spec.Path, map[string]bool{"devices": spec.Devices, "set_id": spec.SetID})
	if spec.At != "" {
		query.Set("at", spec.At)
	}
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: join("workspaces", ref, "export"), query: query}, w)
}

// Usage adds up a directory and, down to depth levels, those in it.
func (n Workspaces) Usage(ctx context.Context, ref, path string, depth int) ([]holt.Usage, error) {
	query := at(path)
	query.Set("depth", strconv.Itoa(depth))
	return list[holt.Usage](ctx, n.c, join("workspaces", ref, "usage"), query)
}

// Tags returns the tags of a file in the order of their names.
func (n Workspaces) Tags(ctx context.Context, ref, path string) ([]holt.Tag, error) {
	return list[holt.Tag](ctx, n.c, join("workspaces", ref, "tags"), at(path))
}

// Tag sets and removes tags of a file and returns what it has then.
func (n Workspaces) Tag(ctx context.Context, ref string, spec holt.TagSpec, key string) (out []holt.Tag, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("workspaces", ref, "tags"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// SetQuota bounds a workspace from now on; the zero quota is none.
func (n Workspaces) SetQuota(ctx context.Context, ref string, q holt.Quota) (out holt.Workspace, err error) {
	err = n.c.json(ctx, call{method: http.MethodPut, path: join("workspaces", ref, "quota"), body: q}, &out)
	return out, err
}
