package client

import (
	"context"
	"net/http"
	"net/url"

	"holt"
)

// Snapshot takes a snapshot of a running computer, which goes on.
func (n Computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (out holt.Snapshot, err error) {
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

// Snapshots are kept instants of computers, by id, by a name that only one has, or as COMPUTER@SNAPSHOT.
type Snapshots struct{ c *Client }

// List returns the snapshots of a computer, or of all with "", oldest first.
func (n Snapshots) List(ctx context.Context, computer string) ([]holt.Snapshot, error) {
	query := url.Values{}
	if computer != "" {
		query.Set("computer", computer)
	}
	return list[holt.Snapshot](ctx, n.c, join("snapshots"), query)
}

// Get returns a snapshot.
func (n Snapshots) Get(ctx context.Context, ref string) (out holt.Snapshot, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("snapshots", ref)}, &out)
	return out, err
}

// Diff says what must change in one computer or snapshot to make it another. Each
// is a computer, as it is now, a snapshot, or COMPUTER@SNAPSHOT.
func (n Snapshots) Diff(ctx context.Context, from, to string) (out holt.ComputerDiff, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("diff"), query: url.Values{"from": {from}, "to": {to}}}, &out)
	return out, err
}

// Delete removes a snapshot; its forks go on.
func (n Snapshots) Delete(ctx context.Context, ref, key string) (out holt.SnapshotFreed, err error) {
	err = n.c.json(ctx, call{method: http.MethodDelete, path: join("snapshots", ref), keyed: true, key: key}, &out)
	return out, err
}

// Fork makes computers of a snapshot.
func (n Snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (out holt.ForkedComputers, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("snapshots", ref, "fork"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Restore takes a computer back to one of its snapshots; what it is until now becomes a snapshot, too.
func (n Snapshots) Restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (out holt.RestoredComputer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("snapshots", ref, "restore"), body: spec, keyed: true, key: key}, &out)
	return out, err
}
