package client

import (
	"context"
	"net/http"
	"net/url"

	"holt"
)

// Snapshot takes a moment of a running computer, which goes on.
func (n Computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (out holt.Moment, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "snapshot"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Fork makes computers of one. What is wrong with one of several is in the answer.
func (n Computers) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (out holt.ForkedComputers, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "fork"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Pause keeps a computer's memory and disks and ends its machine.
func (n Computers) Pause(ctx context.Context, ref, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "pause"), keyed: true, key: key}, &out)
	return out, err
}

// Resume lets a paused computer go on.
func (n Computers) Resume(ctx context.Context, ref, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "resume"), keyed: true, key: key}, &out)
	return out, err
}

// Moments are kept instants of computers, by id, by a name that only one has, or as COMPUTER@MOMENT.
type Moments struct{ c *Client }

// List returns the moments of a computer, or of all with "", oldest first.
func (n Moments) List(ctx context.Context, computer string) ([]holt.Moment, error) {
	query := url.Values{}
	if computer != "" {
		query.Set("computer", computer)
	}
	return list[holt.Moment](ctx, n.c, join("moments"), query)
}

// Get returns a moment.
func (n Moments) Get(ctx context.Context, ref string) (out holt.Moment, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("moments", ref)}, &out)
	return out, err
}

// Diff says what must change in one computer or moment to make it another. Each
// is a computer, as it is now, a moment, or COMPUTER@MOMENT.
func (n Moments) Diff(ctx context.Context, from, to string) (out holt.ComputerDiff, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("diff"), query: url.Values{"from": {from}, "to": {to}}}, &out)
	return out, err
}

// Delete removes a moment; its forks go on.
func (n Moments) Delete(ctx context.Context, ref, key string) (out holt.MomentFreed, err error) {
	err = n.c.json(ctx, call{method: http.MethodDelete, path: join("moments", ref), keyed: true, key: key}, &out)
	return out, err
}

// Fork makes computers of a moment.
func (n Moments) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (out holt.ForkedComputers, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("moments", ref, "fork"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Restore takes a computer back to one of its moments; what it is until now becomes a moment, too.
func (n Moments) Restore(ctx context.Context, ref string, spec holt.MomentRestoreSpec, key string) (out holt.RestoredComputer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("moments", ref, "restore"), body: spec, keyed: true, key: key}, &out)
	return out, err
}
