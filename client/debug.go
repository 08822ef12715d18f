package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Debug writes what the daemon answers at one of its paths for operators, as /metrics or /debug/pprof/heap, to w. The
// latter are there on its socket only.
func (d Daemon) Debug(ctx context.Context, path string, query url.Values, w io.Writer) error {
	resp, err := d.c.open(ctx, call{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return d.c.broken(ctx, err)
	}
	return nil
}
