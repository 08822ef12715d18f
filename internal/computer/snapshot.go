package computer

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/workspace"
)

// Memory implements snapshot, fork, pause, resume and resize of computers.
type Memory struct{ s *Store }

func (s *Store) Memory() *Memory { return &Memory{s} }

// snapshotter takes and removes snapshots.
type snapshotter struct {
	*registry
	snapshots snapshotTable
	disks     *disks
	archiver  *archiver
}

// Snapshot takes a snapshot of a running computer, which keeps running. The snapshot stays until it
// is deleted. Snapshot completes even when its caller leaves.
//
// Errors: NotFound, InvalidArgument and AlreadyExists (the name), Conflict (it is not running),
// Unsupported (by the engine), OutOfSpace, Unavailable.
func (m *Memory) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error) {
	if spec.Name != "" {
		if _, err := holt.ParseName(spec.Name); err != nil {
			return holt.Snapshot{}, err
		}
	}
	act := func(ctx context.Context, claim *idempotency.Claim) (holt.Snapshot, error) {
		return m.s.snapshotter.snapshot(ctx, ref, spec, claim)
	}
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.Snapshot, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.Snapshot]{
			Key: key, Method: "computer.snapshot", Request: []any{ref, spec}, Act: act,
			Again: func(ctx context.Context, id string) (holt.Snapshot, error) {
				if taken, err := m.s.snapshots.get(ctx, holt.SnapshotID(id)); holt.CodeOf(err) != holt.NotFound {
					return taken.Snapshot, err
				}
				return act(ctx, idempotency.ClaimOf(idempotency.StoredKey(ctx, key))) // it was cut off, and undone; this may be, too
			},
		})
	})
}

func (s *snapshotter) snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, claim *idempotency.Claim) (holt.Snapshot, error) {
	r, l, unlock, err := s.holdRunning(ctx, ref)
	if err != nil {
		return holt.Snapshot{}, err
	}
	defer unlock()
	m, err := s.take(ctx, &r, l, snapshotRequest{verb: "snapshot", kind: holt.SnapshotManual, name: spec.Name, claim: claim, durable: true})
	return m.Snapshot, err
}

// holdRunning locks a running computer and returns its machine.
func (s *snapshotter) holdRunning(ctx context.Context, ref string) (record, *live, func(), error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return r, nil, nil, err
	}
	l := s.machines.live(r.ID)
	if r, err = s.canKeep(ctx, r, l); err != nil {
		unlock()
		return r, nil, nil, err
	}
	return r, l, unlock, nil
}

// canKeep returns a computer, whose lock is held, if a snapshot of it can be taken.
func (s *snapshotter) canKeep(ctx context.Context, r record, l *live) (record, error) {
	if err := keepsMemory(s.cfg.engine(r)); err != nil {
		return r, err
	}
	switch {
	case r.State != holt.ComputerRunning:
		return r, wrongState(r)
	case l == nil:
		return r, unreachable(r)
	}
	err := s.mend(ctx, &r, l.m)
	return r, err
}

// snapshotRequest describes a snapshot to take.
type snapshotRequest struct {
	id      holt.SnapshotID // "": a new one
	verb    string
	kind    holt.SnapshotKind
	name    string
	claim   *idempotency.Claim
	end     bool // the machine ends with it, and the computer is paused
	durable bool // it survives power loss
}

// take takes a snapshot of a running computer, whose lock is held: the row, then the machine's
// image and the workspace's checkpoint at the same instant, then that both exist, together with the
// disk that the machine now writes to. mend finishes or undoes an interrupted one, here or in the
// next daemon.
func (s *snapshotter) take(ctx context.Context, r *record, l *live, e snapshotRequest) (snapshot, error) {
	m := snapshot{
		Snapshot: holt.Snapshot{
			ID: cmp.Or(e.id, holt.NewSnapshotID()), Name: e.name, Kind: e.kind, ComputerID: r.ID, Computer: r.Name, Parent: r.snapshot,
			Workspace: r.Workspace, CreatedAt: time.Now().UTC(), CPUs: r.CPUs, MemoryMB: r.MemoryMB, DiskSizeMB: r.DiskSizeMB,
		},
		workspace: r.workspaceID, disk: r.disk,
	}
	if r.disk != "" {
		m.next = holt.NewDiskID()
	}
	err := s.cfg.failpoint(e.verb + "/row")
	if err == nil {
		err = s.snapshots.insert(ctx, s.disks, *r, m, e.claim)
	}
	if err != nil {
		return m, err
	}
	if err = s.cfg.failpoint(e.verb + "/memory"); err == nil {
		err = s.snapshotMachine(ctx, r, l, &m, e)
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		if lost := s.mend(late, r, l.m); lost != nil {
			s.log.ErrorContext(ctx, "undo failed step", "verb", e.verb, "computer", r.ID, "err", lost)
		}
		return m, err
	}
	s.log.InfoContext(ctx, "snapshot taken", "computer", r.ID, "snapshot", m.ID, "kind", m.Kind, "pause_ms", m.PauseMS, "rounds", m.report.Rounds,
		"throttle", m.report.Throttle, "forced", m.report.Forced)
	l.stood.notify()
	if m.Kind == holt.SnapshotOfFork {
		s.saveInventoryLater(l, m.ID)
	} else { // a fork's taker does it while the forks are made
		s.prune(ctx, r.ID, m.ID)
	}
	s.archiver.work.notify()
	return m, nil
}

// snapshotMachine makes the parts of a snapshot, and records them.
func (s *snapshotter) snapshotMachine(ctx context.Context, r *record, l *live, m *snapshot, e snapshotRequest) error {
	syncs := &syncing{fsync: l.ws.Tree().Sync}
	defer syncs.wait()
	if e.durable { // so that little is left to sync while the guest stands still
		l.trim(ctx)
		if err := l.ws.Tree().Sync(); err != nil {
			return hosterror.Full(err)
		}
	}
	spec := machine.SnapshotSpec{Dir: s.snapshots.path(m.ID), End: e.end, Durable: e.durable}
	if m.next != "" {
		spec.Disk = s.disks.path(m.next)
	}
	spec.Held = func(ctx context.Context) error {
		if err := s.cfg.failpoint(e.verb + "/held"); err != nil {
			return err
		}
		_, err := l.ws.Checkpoint(workspace.CheckpointOptions{
			Name: m.checkpoint(), CheckpointNote: workspace.CheckpointNote{Reason: "snapshot of " + r.Name}, Mounts: true,
		})
		switch {
		case err != nil || !e.durable:
			return err
		case e.end: // the guest does not run again, so this may take long
			return l.ws.Tree().Sync()
		}
		return syncs.within(ctx)
	}
	var savedInventory []byte
	if m.Kind != holt.SnapshotOfFork { // which that would make slower
		savedInventory = l.savedInventory(ctx)
	}
	report, err := l.m.Snapshot(ctx, spec)
	if err != nil {
		return hosterror.Full(err)
	}
	if savedInventory != nil {
		if err := os.WriteFile(filepath.Join(spec.Dir, inventoryFile), savedInventory, 0o600); err != nil {
			return hosterror.Full(err)
		}
	}
	if err := s.cfg.failpoint(e.verb + "/ready"); err != nil {
		return err
	}
	return s.complete(ctx, r, m, report, e.end)
}

// complete records that a snapshot is complete, and the new state of its computer.
func (s *snapshotter) complete(ctx context.Context, r *record, m *snapshot, report machine.SnapshotReport, ended bool) error {
	im, err := machine.ReadImage(s.snapshots.path(m.ID))
	if err != nil {
		return err
	}
	m.tell(report)
	m.Bytes = s.snapshots.allocated(m.ID)
	m.CPUs, m.MemoryMB = im.Spec.CPUs, im.Spec.MemoryMB
	then := *r
	then.disk, then.snapshot, then.Reason = m.next, m.ID, ""
	if ended {
		then.State, then.Snapshot = holt.ComputerPaused, m.ID
	}
	if err := s.snapshots.ready(ctx, s.table, *m, then); err != nil {
		return err
	}
	*r = then
	return nil
}

// mend finishes or undoes an unfinished snapshot of a computer, whose lock is held; usually there
// is none. vm is its machine, nil if that has ended.
//
// A running machine reports which disk it writes to. For an ended one the workspace tells: if the
// snapshot's checkpoint exists, the new disk is complete and may have been written to; otherwise it
// was never used.
func (s *snapshotter) mend(ctx context.Context, r *record, vm machine.Machine) error {
	half, err := s.snapshots.list(ctx, `WHERE computer = ? AND state = 'creating'`, r.ID)
	if err != nil {
		return err
	}
	for _, m := range half {
		if vm != nil && !ended(vm) {
			if m.next != "" && filepath.Base(vm.Disk()) == filepath.Base(s.disks.path(m.next)) {
				r.disk = m.next
			}
		} else {
			held, err := s.held(ctx, m)
			if err != nil {
				return err
			}
			if held && m.next != "" {
				r.disk = m.next
			}
			if im, err := machine.ReadImage(s.snapshots.path(m.ID)); held && err == nil && r.State == holt.ComputerPausing {
				return s.complete(ctx, r, &m, im.Report, true)
			}
		}
		if err := s.table.save(ctx, *r); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "remove unfinished snapshot", "computer", r.ID, "snapshot", m.ID)
		if _, err := s.removeSnapshot(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// held reports whether the workspace's checkpoint of a snapshot exists.
func (s *snapshotter) held(ctx context.Context, m snapshot) (bool, error) {
	ws, release, err := s.cfg.Workspaces.View(ctx, m.workspace)
	if err != nil {
		return false, err
	}
	defer release()
	_, err = ws.FindCheckpoint(m.checkpoint())
	if holt.CodeOf(err) == holt.NotFound {
		return false, nil
	}
	return err == nil, err
}

// ended reports whether a machine is known to have ended.
func ended(vm machine.Machine) bool {
	select {
	case <-vm.Done():
		return true
	default:
		return false
	}
}
