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

// forksAtOnce bounds how many forks of one call are made concurrently.
const forksAtOnce = 4

// Fork makes computers from another: from a running one as it is now, from a paused one as it was
// paused, or from one of its snapshots. Each fork has all programs that were running, and its own
// identity. The parent keeps running. Forks are independent: one can fail alone. Fork completes
// even when its caller leaves.
//
// Errors: NotFound, InvalidArgument, AlreadyExists, Conflict (the parent is neither running nor
// paused), Unsupported (by the engine), TooMany (see [table.admit]), OutOfSpace, Unavailable.
func (m *Memory) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	if spec.Name != "" {
		if _, err := holt.ParseName(spec.Name); err != nil {
			return holt.ForkedComputers{}, err
		}
	}
	if err := holt.CheckForks(cmp.Or(spec.Count, 1)); err != nil {
		return holt.ForkedComputers{}, err
	}
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.ForkedComputers, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.ForkedComputers]{
			Key: key, Method: "computer.fork", Request: []any{ref, spec},
			Act: func(ctx context.Context, _ *idempotency.Claim) (holt.ForkedComputers, error) {
				return m.s.fork(ctx, ref, spec, key)
			},
		})
	})
}

// forking is one call of Fork.
type forking struct {
	*Store
	spec   holt.ComputerForkSpec
	key    string
	parent record
	from   snapshot // what the forks are resumed from
	live   *live    // of the parent, if from is still to be taken
}

func (s *Store) fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	count := cmp.Or(spec.Count, 1)
	out, err := s.forkedBefore(ctx, key)
	if count -= len(out.Computers); err != nil || count <= 0 {
		return out, err
	}
	if out.Snapshot != "" { // the others are of the same instant
		spec.At = string(out.Snapshot)
	}
	f := &forking{Store: s, spec: spec, key: key}
	unlock, err := f.lock(ctx, ref)
	if err != nil {
		return out, err
	}
	defer unlock()
	names, err := f.names(ctx, count)
	if err == nil && f.live != nil {
		err = f.takeSnapshot(ctx, names[0])
	}
	if err != nil {
		return out, err
	}
	out.Snapshot = f.from.ID
	made, errs := f.all(ctx, names)
	if f.live != nil && len(out.Computers) == 0 && !slices.Contains(errs, nil) && ctx.Err() == nil {
		out.Snapshot = ""
		f.discard(ctx)
	}
	if cmp.Or(spec.Count, 1) == 1 && errs[0] != nil {
		return out, errs[0]
	}
	out.Computers = append(out.Computers, made...)
	return out, nil
}

// forkedBefore returns the forks that a daemon which was killed made for the same call.
func (s *Store) forkedBefore(ctx context.Context, key string) (out holt.ForkedComputers, err error) {
	if key == "" {
		return out, nil
	}
	made, err := s.table.list(ctx, `WHERE call = ?1 AND state NOT IN ('creating', 'failed')
		AND created >= (SELECT created FROM idempotency WHERE key = ?1) ORDER BY name`, idempotency.StoredKey(ctx, key))
	for _, r := range made {
		out.Computers = append(out.Computers, holt.ForkedComputer{ID: r.ID, Name: r.Name})
		out.Snapshot = r.Parent.Snapshot
	}
	return out, err
}

// all makes the forks, several at once, and prunes the parent's snapshots meanwhile.
func (f *forking) all(ctx context.Context, names []string) ([]holt.ForkedComputer, []error) {
	var pruning sync.WaitGroup
	defer pruning.Wait()
	pruning.Go(func() { f.snapshotter.prune(ctx, f.parent.ID, f.from.ID) })
	made, errs := make([]holt.ForkedComputer, len(names)), make([]error, len(names))
	var work errgroup.Group
	work.SetLimit(forksAtOnce)
	for i, name := range names {
		work.Go(func() error {
			made[i], errs[i] = f.one(ctx, name)
			return nil
		})
	}
	_ = work.Wait()
	return made, errs
}

// takeSnapshot takes the snapshot that the forks are resumed from, unless no fork could run.
func (f *forking) takeSnapshot(ctx context.Context, name string) (err error) {
	if err := f.mayFork(ctx, name); err != nil {
		return err
	}
	f.from, err = f.snapshotter.take(ctx, &f.parent, f.live, snapshotRequest{verb: "fork-snapshot", kind: holt.SnapshotOfFork})
	return err
}

// mayFork refuses forks that could not run, before the parent is stopped for a snapshot.
func (f *forking) mayFork(ctx context.Context, name string) error {
	r := f.parent
	fork := record{Computer: holt.Computer{Name: name, State: holt.ComputerCreating, MemoryMB: r.MemoryMB, DiskSizeMB: r.DiskSizeMB, WorkspaceSizeMB: r.WorkspaceSizeMB, Parent: &holt.Origin{ID: r.ID}}, owned: true}
	return f.idler.withRoom(ctx, func() error {
		return read(ctx, f.cfg.DB, func(tx *db.Tx) error {
			if err := fork.belongs(tx); err != nil {
				return err
			}
			if err := fork.bound(tx); err != nil {
				return err
			}
			return f.table.admit(tx, fork)
		})
	})
}

// discard removes the snapshot of forks that all failed.
func (f *forking) discard(ctx context.Context) {
	done, err := f.snapshots.markDeletingAutomatic(ctx, f.from.ID)
	if err == nil && done {
		_, err = f.snapshotter.removeSnapshot(ctx, f.from)
	}
	if err != nil {
		f.log.WarnContext(ctx, "remove snapshot of failed forks", "snapshot", f.from.ID, "err", err) // the next daemon continues, or it is pruned
	}
}

// lock locks the parent and finds the snapshot to fork: the given one, or the one that the parent is
// paused at. For a running parent a new one is to be taken: then live is set.
func (f *forking) lock(ctx context.Context, ref string) (unlock func(), err error) {
	if f.parent, unlock, err = f.hold(ctx, ref); err != nil {
		return nil, err
	}
	engine := f.cfg.engine(f.parent)
	if err = keepsMemory(engine); err == nil {
		err = f.cfg.checkNetwork(engine, f.spec.Network)
	}
	switch {
	case err != nil:
	case f.spec.At != "":
		f.from, err = f.snapshots.of(ctx, f.parent, f.spec.At)
	case f.parent.State == holt.ComputerPaused:
		f.from, err = f.snapshots.get(ctx, f.parent.snapshot)
	default:
		unlock()
		f.parent, f.live, unlock, err = f.snapshotter.holdRunning(ctx, ref)
		return unlock, err
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// names chooses free names. It returns AlreadyExists for a given name that is not free, before the
// parent is stopped for a snapshot.
func (f *forking) names(ctx context.Context, count int) ([]string, error) {
	r, spec := f.parent, f.spec
	all, err := f.table.list(ctx, `WHERE tenant = ?`, r.Tenant)
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
		case f.cfg.taken(ctx, name):
			return nil, holt.Errorf(holt.AlreadyExists, "a workspace named %q already exists", name).WithHint("choose another name, or omit it to get a free one")
		}
		return []string{name}, nil
	}
	return ForkNames(cmp.Or(spec.Name, r.Name), count, func(name string) bool { return taken[name] || f.cfg.taken(ctx, name) })
}

// one makes one fork, or undoes it.
func (f *forking) one(ctx context.Context, name string) (holt.ForkedComputer, error) {
	parent, from := f.parent, f.from
	r := &record{
		Computer: holt.Computer{
			ID: holt.NewComputerID(), Name: name, Template: parent.Template, State: holt.ComputerCreating, Engine: f.cfg.engine(parent).Name(),
			CPUs: from.CPUs, MemoryMB: from.MemoryMB, DiskSizeMB: from.DiskSizeMB, WorkspaceSizeMB: parent.WorkspaceSizeMB, CreatedAt: time.Now().UTC(),
			Parent: &holt.Origin{ID: parent.ID, Name: parent.Name, Snapshot: from.ID}, IdleTimeout: parent.IdleTimeout,
		},
		image: parent.image, workspaceID: holt.NewWorkspaceID(), owned: true, snapshot: from.ID, call: idempotency.StoredKey(ctx, f.key), network: f.spec.Network, withSecrets: f.spec.WithSecrets,
	}
	if from.disk != "" {
		r.disk = holt.NewDiskID()
	}
	failed := func(err error) (holt.ForkedComputer, error) {
		return holt.ForkedComputer{Name: name, Error: holt.AsError(err)}, err
	}
	unlock, err := f.machines.lock(ctx, r.ID)
	if err != nil {
		return failed(err)
	}
	defer unlock()
	m := &transition{s: f.Store, r: r, from: &from, source: from.workspace}
	if from.Stopped { // it boots
		if m.img, err = f.cfg.pick(ctx, f.cfg.engine(parent), parent.imageRef()); err != nil {
			return failed(err)
		}
	}
	if err := m.forward(ctx, "fork", append(m.steps(), step{"settle", m.settle, nothing})); err != nil {
		if m.stuck != nil {
			m.markFailed(ctx, m.stuck)
		}
		return failed(err)
	}
	f.log.InfoContext(ctx, "computer forked", "computer", r.ID, "name", r.Name, "snapshot", from.ID, "ms", r.BootMS)
	return holt.ForkedComputer{ID: r.ID, Name: r.Name}, nil
}
