package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) snapshots() {
	computers, n := s.opt.Nouns.Computers, s.opt.Nouns.Snapshots
	bind(s, api.TakeSnapshot, func(ctx context.Context, in *api.ComputerBody[holt.SnapshotSpec]) (holt.Snapshot, error) {
		return computers.Snapshot(ctx, in.Computer, in.Body, in.Key)
	})
	bind(s, api.ForkComputer, func(ctx context.Context, in *api.ComputerBody[holt.ComputerForkSpec]) (holt.ForkedComputers, error) {
		return computers.Fork(ctx, in.Computer, in.Body, in.Key)
	})
	bindList(s, api.ListSnapshots, func(ctx context.Context, in *api.SnapshotsOf) ([]holt.Snapshot, error) {
		return n.List(ctx, in.Computer)
	})
	bind(s, api.GetSnapshot, func(ctx context.Context, in *api.OneSnapshot) (holt.Snapshot, error) { return n.Get(ctx, in.Snapshot) })
	bind(s, api.DeleteSnapshot, func(ctx context.Context, in *api.SnapshotKeyed) (holt.SnapshotFreed, error) {
		return n.Delete(ctx, in.Snapshot, in.Key)
	})
	bind(s, api.ForkSnapshot, func(ctx context.Context, in *api.SnapshotBody[holt.ComputerForkSpec]) (holt.ForkedComputers, error) {
		if in.Body.At != "" {
			return holt.ForkedComputers{}, holt.Errorf(holt.InvalidArgument, "the snapshot is given twice, in the path and in \"at\"").WithHint("omit \"at\"")
		}
		return n.Fork(ctx, in.Snapshot, in.Body, in.Key)
	})
	bind(s, api.RestoreSnapshot, func(ctx context.Context, in *api.SnapshotBody[holt.SnapshotRestoreSpec]) (holt.RestoredComputer, error) {
		return n.Restore(ctx, in.Snapshot, in.Body, in.Key)
	})
	bind(s, api.DiffComputers, func(ctx context.Context, in *api.TwoSides) (holt.ComputerDiff, error) {
		return n.Diff(ctx, in.From, in.To)
	})
}
