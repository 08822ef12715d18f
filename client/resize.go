package client

import (
	"context"
	"net/http"

	"holt"
)

// Resize changes a computer's processors, memory or root disk.
func (n Computers) Resize(ctx context.Context, ref string, spec holt.ResizeSpec, key string) (out holt.ResizedComputer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "resize"), body: spec, keyed: true, key: key}, &out)
	return out, err
}
