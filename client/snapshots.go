package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Snapshot takes a snapshot of a running computer, which keeps running.
func (n Computers) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error) {
	return do(ctx, n.c, api.TakeSnapshot, api.ComputerBody[holt.SnapshotSpec]{api.OneComputer{ref}, api.Keyed{key}, spec})
}

// Fork makes computers of one. What is wrong with one of several is in the answer.
func (n Computers) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	return do(ctx, n.c, api.ForkComputer, api.ComputerBody[holt.ComputerForkSpec]{api.OneComputer{ref}, api.Keyed{key}, spec})
}

// Pause keeps a computer's memory and disks and ends its machine.
func (n Computers) Pause(ctx context.Context, ref, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.PauseComputer, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}

// Resume resumes a paused computer.
func (n Computers) Resume(ctx context.Context, ref, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.ResumeComputer, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}

// Snapshots are kept instants of computers, by id, by a name that only one has, or as COMPUTER@SNAPSHOT.
type Snapshots struct{ c *Client }

// List returns the snapshots of a computer, or of all with "", oldest first.
func (n Snapshots) List(ctx context.Context, computer string) ([]holt.Snapshot, error) {
	return doList(ctx, n.c, api.ListSnapshots, api.SnapshotsOf{Computer: computer})
}

// Get returns a snapshot.
func (n Snapshots) Get(ctx context.Context, ref string) (holt.Snapshot, error) {
	return do(ctx, n.c, api.GetSnapshot, api.OneSnapshot{ref})
}

// Diff says what must change in one computer or snapshot to make it another. Each
// is a computer, as it is now, a snapshot, or COMPUTER@SNAPSHOT.
func (n Snapshots) Diff(ctx context.Context, from, to string) (holt.ComputerDiff, error) {
	return do(ctx, n.c, api.DiffComputers, api.TwoSides{from, to})
}

// Delete removes a snapshot. Its forks are not affected.
func (n Snapshots) Delete(ctx context.Context, ref, key string) (holt.SnapshotFreed, error) {
	return do(ctx, n.c, api.DeleteSnapshot, api.SnapshotKeyed{api.OneSnapshot{ref}, api.Keyed{key}})
}

// Fork makes computers of a snapshot.
func (n Snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	return do(ctx, n.c, api.ForkSnapshot, api.SnapshotBody[holt.ComputerForkSpec]{api.OneSnapshot{ref}, api.Keyed{key}, spec})
}

// Restore takes a computer back to one of its snapshots; what it is until now becomes a snapshot, too.
func (n Snapshots) Restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (holt.RestoredComputer, error) {
	return do(ctx, n.c, api.RestoreSnapshot, api.SnapshotBody[holt.SnapshotRestoreSpec]{api.OneSnapshot{ref}, api.Keyed{key}, spec})
}
