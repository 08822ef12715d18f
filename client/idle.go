package client

import (
	"context"
	"net/http"

	"holt"
)

// Awake says why a computer is awake and when it is paused.
func (n Computers) Awake(ctx context.Context, ref string) (out holt.Awake, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("computers", ref, "awake")}, &out)
	return out, err
}

// Update renames a computer, or changes when it is paused for being idle.
func (n Computers) Update(ctx context.Context, ref string, change holt.ComputerUpdate, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPatch, path: join("computers", ref), body: change, keyed: true, key: key}, &out)
	return out, err
}

// Hold keeps a computer awake until it expires or is released.
func (n Computers) Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (out holt.Hold, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "holds"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Holds returns the holds of a computer.
func (n Computers) Holds(ctx context.Context, ref string) ([]holt.Hold, error) {
	return list[holt.Hold](ctx, n.c, join("computers", ref, "holds"), nil)
}

// Release ends a hold.
func (n Computers) Release(ctx context.Context, ref string, id holt.HoldID, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", ref, "holds", string(id)), keyed: true, key: key}, nil)
}
