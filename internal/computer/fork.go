package computer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// forksAtOnce is how many forks of one call are made side by side.
const forksAtOnce = 4

// forks are the computers that are made of one.
type forks struct{ memory }

// Fork makes computers of one: of a running one as it is now, which goes on; of
// a paused one as it was paused; or of one of its snapshots. Each has everything
// that ran in it and an identity of its own. One that fails does not keep the
// others from being made. It goes on when its caller leaves.
//
// Errors: NotFound, InvalidArgument, AlreadyExists, Conflict (it neither runs
// nor is paused), Unsupported (by the engine), TooMany (see [table.admit]), OutOfSpace, Unavailable.
func (m *Memory) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	if spec.Name != "" {
		if _, err := holt.ParseName(spec.Name); err != nil {
			return holt.ForkedComputers{}, err
		}
	}
	if err := holt.CheckForks(cmp.Or(spec.Count, 1)); err != nil {
		return holt.ForkedComputers{}, err
	}
	if err := m.s.cfg.checkNetwork(spec.Network); err != nil {
		return holt.ForkedComputers{}, err
	}
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.ForkedComputers, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.ForkedComputers]{
			Key: key, Method: "computer.fork", Request: []any{ref, spec},
			Act: func(ctx context.Context, _ *idempotency.Claim) (holt.ForkedComputers, error) {
				return forks{memory{m.s}}.fork(ctx, ref, spec, key)
			},
		})
	})
}

func (s forks) fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (out holt.ForkedComputers, err error) {
	count := cmp.Or(spec.Count, 1)
	// A daemon that was killed may have made some for this very call: since its key was first used.
	if key != "" {
		made, err := s.table.list(ctx, `WHERE call = ?1 AND state NOT IN ('creating', 'failed')
			AND created >= (SELECT created FROM idempotency WHERE key = ?1) ORDER BY name`, idempotency.StoredKey(ctx, key))
		if err != nil {
			return out, err
		}
		for _, r := range made {
			out.Computers = append(out.Computers, holt.ForkedComputer{ID: r.ID, Name: r.Name})
			out.Snapshot = r.Parent.Snapshot
		}
	}
	if count -= len(out.Computers); count <= 0 {
		return out, nil
	}
	if out.Snapshot != "" { // the others are of the same instant
		spec.At = string(out.Snapshot)
	}
	from, r, l, unlock, err := s.forkable(ctx, ref, spec.At)
	if err != nil {
		return out, err
	}
	defer unlock()
	names, err := s.forkNames(ctx, r, spec, count)
	if err == nil && l != nil {
		err = s.mayFork(ctx, r, names[0])
	}
	if err == nil && l != nil {
		from, err = s.take(ctx, &r, l, snapshotRequest{verb: "fork-snapshot", kind: holt.SnapshotOfFork})
	}
	if err != nil {
		return out, err
	}
	out.Snapshot = from.ID
	var pruning sync.WaitGroup
	pruning.Go(func() { memory{s.Store}.prune(ctx, r.ID, from.ID) })
	made, errs := make([]holt.ForkedComputer, count), make([]error, count)
	var work errgroup.Group
	work.SetLimit(forksAtOnce)
	for i, name := range names {
		work.Go(func() error {
			made[i], errs[i] = s.forkOne(ctx, r, from, name, key, spec)
			return nil
		})
	}
	work.Wait()
	pruning.Wait()
	if l != nil && len(out.Computers) == 0 && !slices.Contains(errs, nil) && ctx.Err() == nil {
		out.Snapshot = ""
		s.discard(ctx, from)
	}
	if cmp.Or(spec.Count, 1) == 1 && errs[0] != nil {
		return out, errs[0]
	}
	out.Computers = append(out.Computers, made...)
	return out, nil
}

// mayFork refuses a fork that could not run: a computer does not stand still for that.
func (s forks) mayFork(ctx context.Context, r record, name string) error {
	fork := record{Computer: holt.Computer{Name: name, State: holt.ComputerCreating, MemoryMB: r.MemoryMB, DiskSizeMB: r.DiskSizeMB, WorkspaceSizeMB: r.WorkspaceSizeMB, Parent: &holt.Origin{ID: r.ID}}, owned: true}
	return s.withRoom(ctx, func() error {
		return read(ctx, s.cfg.DB, func(tx *db.Tx) error {
			if err := fork.belongs(tx); err != nil {
				return err
			}
			if err := fork.bound(tx); err != nil {
				return err
			}
			return s.table.admit(tx, fork)
		})
	})
}

// discard removes a snapshot that was taken for forks of which none came to be.
func (s forks) discard(ctx context.Context, m snapshot) {
	done, err := s.snapshots.markDeletingAutomatic(ctx, m.ID)
	if err == nil && done {
		_, err = s.removeSnapshot(ctx, m)
	}
	if err != nil {
		s.log.WarnContext(ctx, "remove the snapshot of forks that were not made", "snapshot", m.ID, "err", err) // the next daemon goes on, or it is pruned
	}
}

// forkable locks a computer and returns the snapshot to fork: the one that is named, or the
// one that it is paused at. Of one that runs a new one is to be taken: then its live is there.
func (s forks) forkable(ctx context.Context, ref, at string) (from snapshot, r record, l *live, unlock func(), err error) {
	if r, unlock, err = s.hold(ctx, ref); err != nil {
		return from, r, nil, nil, err
	}
	switch {
	case !s.cfg.Engine.Capabilities().MemorySnapshot:
		err = noMemory(s.cfg.Engine)
	case at != "":
		from, err = s.snapshots.of(ctx, r, at)
	case r.State == holt.ComputerPaused:
		from, err = s.snapshots.get(ctx, r.snapshot)
	default:
		unlock()
		if r, l, unlock, err = s.holdRunning(ctx, ref); err != nil {
			return from, r, nil, nil, err
		}
	}
	if err != nil {
		unlock()
		return from, r, nil, nil, err
	}
	return from, r, l, unlock, nil
}

// forkNames chooses names that are free. AlreadyExists for a given one that is not: a
// computer does not stand still, and no older snapshot goes, for what cannot be made.
func (s forks) forkNames(ctx context.Context, r record, spec holt.ComputerForkSpec, count int) ([]string, error) {
	all, err := s.table.list(ctx, `WHERE tenant = ?`, r.Tenant)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, c := range all {
		taken[c.Name] = true
	}
	if name := spec.Name; name != "" && cmp.Or(spec.Count, 1) == 1 {
		switch {
		case taken[name]:
			return nil, computerTaken(name)
		case s.cfg.taken(ctx, name):
			return nil, holt.Errorf(holt.AlreadyExists, "there is a workspace %q already", name).WithHint("choose another name, or leave it out to get a free one")
		}
		return []string{name}, nil
	}
	return ForkNames(cmp.Or(spec.Name, r.Name), count, func(name string) bool { return taken[name] || s.cfg.taken(ctx, name) })
}

// forkOne makes one fork of a snapshot. One that does not come up as itself is undone.
func (s forks) forkOne(ctx context.Context, parent record, from snapshot, name, key string, spec holt.ComputerForkSpec) (holt.ForkedComputer, error) {
	r := &record{
		Computer: holt.Computer{
			ID: holt.NewComputerID(), Name: name, Template: parent.Template, State: holt.ComputerCreating, Engine: s.cfg.Engine.Name(),
			CPUs: from.CPUs, MemoryMB: from.MemoryMB, DiskSizeMB: from.DiskSizeMB, WorkspaceSizeMB: parent.WorkspaceSizeMB, CreatedAt: time.Now().UTC(),
			Parent: &holt.Origin{ID: parent.ID, Name: parent.Name, Snapshot: from.ID}, IdleTimeout: parent.IdleTimeout,
		},
		image: parent.image, workspaceID: holt.NewWorkspaceID(), owned: true, snapshot: from.ID, call: idempotency.StoredKey(ctx, key), network: spec.Network, withSecrets: spec.WithSecrets,
	}
	if from.disk != "" {
		r.disk = holt.NewDiskID()
	}
	failed := func(err error) (holt.ForkedComputer, error) {
		return holt.ForkedComputer{Name: name, Error: holt.AsError(err)}, err
	}
	unlock, err := s.machines.lock(ctx, r.ID)
	if err != nil {
		return failed(err)
	}
	defer unlock()
	m := &transition{s: s.Store, r: r, from: &from, source: from.workspace}
	if from.Stopped { // it boots
		if m.img, err = s.cfg.pick(ctx, parent.imageRef()); err != nil {
			return failed(err)
		}
	}
	if err := m.forward(ctx, "fork", append(m.steps(), step{"settle", m.settle, nothing})); err != nil {
		if m.stuck != nil {
			m.markFailed(ctx, m.stuck)
		}
		return failed(err)
	}
	s.log.InfoContext(ctx, "computer forked", "computer", r.ID, "name", r.Name, "snapshot", from.ID, "ms", r.BootMS)
	return holt.ForkedComputer{ID: r.ID, Name: r.Name}, nil
}
