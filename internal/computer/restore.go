package computer

import (
	"context"
	"fmt"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Restore restores a computer to one of its snapshots, with memory, root disk, workspace and
// terminals, and resumes it. The state before becomes a snapshot first: restoring that one undoes
// the restore. A restore that fails leaves the computer as it was; if that cannot be resumed
// either, it stays paused at the new snapshot. Restore completes even when its caller leaves.
//
// Errors: NotFound, InvalidArgument and AlreadyExists (the name), Conflict (the snapshot's files
// are gone; several snapshots have that name; the workspace is mounted on the host; the computer is
// incomplete), Unsupported (this host cannot run the snapshot's memory), OutOfSpace, Unavailable.
func (m *Snapshots) Restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, key string) (holt.RestoredComputer, error) {
	if spec.Name != "" {
		if _, err := holt.ParseName(spec.Name); err != nil {
			return holt.RestoredComputer{}, err
		}
	}
	s := m.s.restorer
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.RestoredComputer, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.RestoredComputer]{
			Key: key, Method: "snapshot.restore", Request: []any{ref, spec},
			Act: func(ctx context.Context, claim *idempotency.Claim) (holt.RestoredComputer, error) {
				return s.restore(ctx, ref, spec, claim)
			},
			Again: s.restoredAgain,
		})
	})
}

// restorer restores computers to their snapshots.
type restorer struct{ *Store }

func (s *restorer) restore(ctx context.Context, ref string, spec holt.SnapshotRestoreSpec, claim *idempotency.Claim) (out holt.RestoredComputer, err error) {
	target, err := s.snapshots.find(ctx, ref)
	if err != nil {
		return out, err
	}
	r, unlock, err := s.hold(ctx, string(target.ComputerID))
	if err != nil {
		return out, err
	}
	defer unlock()
	// A daemon may have gone on, under the lock, with what one before it began for this very call.
	if done, err := claim.Bound(ctx, s.cfg.DB); err != nil || done != "" {
		return s.restored(ctx, r, holt.SnapshotID(done), err)
	}
	if target, err = s.snapshots.get(ctx, target.ID); err != nil { // it may have been deleted meanwhile
		return out, err
	}
	changed, err := s.mayRestore(ctx, &r, target)
	if err != nil {
		return out, err
	}
	if !target.Stopped { // its memory is fetched, if need be, before anything ends, and stays
		done, err := s.archiver.use(ctx, target)
		if err != nil {
			return out, err
		}
		defer done()
	}
	if changed {
		if _, err := s.pauser.resumeLocked(ctx, &r); err != nil {
			return out, err
		}
	} else if r.State == holt.ComputerPaused && r.snapshot == target.ID { // it is there
		_, err := s.pauser.resumeLocked(ctx, &r)
		return s.restored(ctx, r, target.ID, err)
	}
	b, err := s.restoringTo(ctx, &r, target, spec.Name, claim)
	if err != nil {
		return out, err
	}
	if err := b.forward(ctx, "restore", b.steps()); err != nil {
		return out, b.failed(err)
	}
	b.tidy(ctx)
	return s.restored(ctx, r, b.present.ID, nil)
}

// restored is the answer of a restore, unless it failed.
func (s *restorer) restored(ctx context.Context, r record, present holt.SnapshotID, err error) (out holt.RestoredComputer, _ error) {
	if err == nil {
		out.Computer = s.shown(r)
		out.Present, err = s.Snapshots().Get(ctx, string(present))
	}
	return out, err
}

// restoredAgain answers a repeat whose first call was interrupted after the swap. The daemon may
// still be finishing it.
func (s *restorer) restoredAgain(ctx context.Context, present string) (out holt.RestoredComputer, err error) {
	m, err := s.snapshots.get(ctx, holt.SnapshotID(present))
	if err != nil {
		return out, err
	}
	r, unlock, err := s.hold(ctx, string(m.ComputerID))
	if err != nil {
		return out, err
	}
	defer unlock()
	return s.restored(ctx, r, m.ID, nil)
}

// mayRestore refuses what is impossible, before anything is changed. changed reports that the
// workspace of a paused computer was changed since the pause: the computer must be resumed first,
// so that a snapshot can have both those changes and its memory.
func (s *restorer) mayRestore(ctx context.Context, r *record, target snapshot) (changed bool, err error) {
	if err := keepsMemory(s.cfg.engine(*r)); err != nil {
		return false, err
	}
	if err := s.shutdown.mayStart(); err != nil {
		return false, err
	}
	if err := s.cfg.Workspaces.Unmounted(ctx, r.workspaceID); err != nil {
		return false, err
	}
	if !target.Stopped {
		if _, err := machine.ReadImage(s.snapshots.path(target.ID)); err != nil {
			return false, err
		}
	}
	switch r.State {
	case holt.ComputerStopped:
		return false, nil
	case holt.ComputerRunning:
		l := s.machines.live(r.ID)
		if l == nil {
			return false, unreachable(*r)
		}
		return false, s.snapshotter.mend(ctx, r, l.m)
	case holt.ComputerPaused:
		same, err := s.unchanged(ctx, *r)
		return err == nil && !same, err
	}
	return false, wrongState(*r)
}

// unchanged reports whether the workspace of a paused computer is as it was at the pause.
func (s *restorer) unchanged(ctx context.Context, r record) (bool, error) {
	ws, release, err := s.cfg.Workspaces.View(ctx, r.workspaceID)
	if err != nil {
		return false, err
	}
	defer release()
	head, changed := ws.Present()
	at, err := ws.FindCheckpoint(string(r.snapshot))
	if holt.CodeOf(err) == holt.NotFound {
		return false, nil
	}
	return err == nil && !changed && at.ID == head, err
}

// restoring is one restore, as steps that can be undone. Nothing of it is visible before the swap,
// except that a running machine ends with the snapshot of its state.
type restoring struct {
	transition // from is the snapshot that it goes back to
	row        restoreRow
	name       string // of the snapshot that its present becomes
	was        record // before the swap

	present snapshot // what it is until now; none before keep
	drop    bool     // the workspace that it leaves holds no snapshot
	lost    error    // why a machine that did not come up could not be undone
}

// restoringTo prepares the restore of a computer whose lock is held.
func (s *restorer) restoringTo(ctx context.Context, r *record, target snapshot, name string, claim *idempotency.Claim) (*restoring, error) {
	name, err := s.presentName(ctx, *r, name)
	if err != nil {
		return nil, err
	}
	b := &restoring{transition: transition{s: s.Store, r: r, from: &target}, name: name, row: restoreRow{
		computer: r.ID, snapshot: target.ID, workspace: holt.NewWorkspaceID(), ran: r.State == holt.ComputerRunning,
		present: holt.NewSnapshotID(), claim: claim,
	}}
	if target.disk != "" {
		b.row.disk = holt.NewDiskID()
	}
	if r.State == holt.ComputerPaused {
		b.row.present = r.snapshot
	}
	return b, nil
}

// presentName chooses the name of the snapshot of the state before.
func (s *restorer) presentName(ctx context.Context, r record, name string) (string, error) {
	all, err := s.snapshots.list(ctx, `WHERE computer = ? AND name <> ''`, r.ID)
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	for _, m := range all {
		taken[m.Name] = true
	}
	if name != "" {
		if taken[name] {
			return "", snapshotTaken(r.Name, name)
		}
		return name, nil
	}
	name = "before-restore"
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("before-restore-%d", n)
	}
	return name, nil
}

func (b *restoring) steps() []step {
	return []step{
		{"row", b.begin, b.forget},
		{"disk", b.makeDisk, nothing},
		{"workspace", b.branch, b.dropBranch},
		{"present", b.keep, b.unkeep},
		{"swap", func(ctx context.Context) error { return b.s.idler.withRoom(ctx, func() error { return b.swap(ctx) }) }, b.swapBack},
		{"go", b.resume, nothing}, // from here on there is nothing to undo
	}
}

// begin records the restore and the row of its disk.
func (b *restoring) begin(ctx context.Context) error {
	return writeSync(ctx, b.s.cfg.DB, func(tx *db.Tx) error {
		if b.row.disk != "" {
			if err := b.s.disks.insert(tx, b.row.disk, b.from.disk, b.r); err != nil {
				return err
			}
		}
		return b.row.insert(tx)
	})
}

// forget removes the record of a restore that is done or undone.
func (b *restoring) forget(ctx context.Context) error {
	if err := eraseRestore(ctx, b.s.cfg.DB, b.r.ID); err != nil {
		return err
	}
	_, err := b.s.disks.collect(ctx)
	return err
}

func (b *restoring) makeDisk(ctx context.Context) error {
	return b.overlay(ctx, b.row.disk, b.from.DiskSizeMB)
}

// branch forks the workspace at the snapshot.
func (b *restoring) branch(ctx context.Context) error {
	err := b.s.cfg.Workspaces.Branch(ctx, b.row.workspace, b.from.workspace, b.from.checkpoint(), !b.from.Stopped)
	if holt.CodeOf(err) == holt.NotFound {
		return holt.Errorf(holt.Conflict, "the files of the snapshot %s are gone: its workspace checkpoint was deleted", b.from.ID).
			WithHint("the computer was not changed; holt snapshot list %s lists its other snapshots", b.r.Name)
	}
	return err
}

// dropBranch removes that fork. If it fails the next start of the registry removes it; the record
// of the restore must not stay, or the next daemon would continue the restore.
func (b *restoring) dropBranch(ctx context.Context) error {
	if err := b.s.cfg.Workspaces.Remove(ctx, b.row.workspace); err != nil {
		b.s.log.WarnContext(ctx, "remove workspace of failed restore", "computer", b.r.ID, "workspace", b.row.workspace, "err", err)
	}
	return nil
}

// keep makes the state before a snapshot. A running machine ends with it, a paused one has one, and
// a stopped one has no memory.
func (b *restoring) keep(ctx context.Context) (err error) {
	s := b.s
	switch b.r.State {
	case holt.ComputerRunning:
		b.present, err = s.pauser.hibernate(ctx, b.r, b.s.machines.live(b.r.ID),
			snapshotRequest{id: b.row.present, verb: "present", kind: holt.SnapshotManual, name: b.name, end: true, durable: true})
	case holt.ComputerPaused:
		b.present, err = s.snapshots.get(ctx, b.row.present)
	default:
		b.present, err = s.restorer.keepStopped(ctx, b.r, b.row.present, b.name)
	}
	return err
}

// keepStopped begins the snapshot of a stopped computer: its disk, which is frozen, and its
// workspace. The swap completes it.
func (s *restorer) keepStopped(ctx context.Context, r *record, id holt.SnapshotID, name string) (snapshot, error) {
	m := snapshot{
		Snapshot: holt.Snapshot{
			ID: id, Name: name, Kind: holt.SnapshotManual, ComputerID: r.ID, Computer: r.Name, Parent: r.snapshot,
			Workspace: r.Workspace, CreatedAt: time.Now().UTC(), CPUs: r.CPUs, MemoryMB: r.MemoryMB, DiskSizeMB: r.DiskSizeMB, Stopped: true,
		},
		workspace: r.workspaceID, disk: r.disk,
	}
	if err := s.snapshots.insert(ctx, s.disks, *r, m, nil); err != nil {
		return snapshot{}, err
	}
	ws, release, err := s.cfg.Workspaces.View(ctx, r.workspaceID)
	if err != nil {
		return m, err
	}
	defer release()
	_, err = ws.Checkpoint(workspace.CheckpointOptions{
		Name: m.checkpoint(), CheckpointNote: workspace.CheckpointNote{Reason: "snapshot of " + r.Name + ", stopped"}, Synced: true,
	})
	return m, err
}

// unkeep resumes the computer and removes that snapshot. If the resume fails the snapshot stays. It
// returns no error then: the other steps must be undone, and the record of a failed restore
// removed.
func (b *restoring) unkeep(ctx context.Context) error {
	s := b.s
	switch {
	case s.shutdown.ctx.Err() != nil:
		return ending() // the next daemon continues
	case b.row.ran && b.r.State == holt.ComputerPaused:
		_, err := s.pauser.resumeLocked(ctx, b.r)
		if s.shutdown.ctx.Err() != nil {
			return ending()
		}
		if err != nil {
			s.log.ErrorContext(ctx, "resume computer after failed restore", "computer", b.r.ID, "snapshot", b.row.present, "err", err)
			return nil
		}
	case b.row.ran || !b.present.Stopped:
		return nil // it runs, since no snapshot could be taken; or it was paused at one
	}
	if err := s.restorer.takeBack(ctx, b.r, b.present); err != nil {
		s.log.WarnContext(ctx, "remove snapshot of failed restore", "computer", b.r.ID, "snapshot", b.row.present, "err", err)
	}
	return nil
}

// failed is the error of an undone restore. A computer that was running may be paused now.
func (b *restoring) failed(err error) error {
	if !b.row.ran || b.r.State != holt.ComputerPaused || b.r.snapshot != b.row.present || b.s.shutdown.ctx.Err() != nil {
		return err
	}
	return holt.Errorf(holt.CodeOf(err), "%w; %s could not be resumed either, and stays paused at the snapshot %s", err, b.r.Name, b.name).
		WithHint("resume it with holt computer resume %s", b.r.Name)
}

// takeBack removes the last snapshot of a computer, as if it had never been taken.
func (s *restorer) takeBack(ctx context.Context, r *record, m snapshot) error {
	r.snapshot = m.Parent
	if err := s.table.save(ctx, *r); err != nil {
		return err
	}
	if _, err := s.snapshots.markDeleting(ctx, m.ID, nil); err != nil {
		return err
	}
	_, err := s.snapshotter.removeSnapshot(ctx, m)
	return err
}

// swap is the restore: one transaction gives the computer the state and disk of the snapshot,
// paused or stopped, and another workspace.
func (b *restoring) swap(ctx context.Context) error {
	if err := b.s.cfg.Workspaces.Unmounted(ctx, b.r.workspaceID); err != nil {
		return err // the host has mounted it since
	}
	b.was = *b.r
	then := *b.r
	then.State, then.Reason, then.snapshot, then.Snapshot = holt.ComputerPaused, "", b.from.ID, b.from.ID
	then.CPUs, then.MemoryMB, then.DiskSizeMB, then.wish = b.from.CPUs, b.from.MemoryMB, b.from.DiskSizeMB, wish{}
	then.disk, then.workspaceID = b.row.disk, b.row.workspace
	if b.from.Stopped {
		then.State, then.Snapshot = holt.ComputerStopped, ""
	}
	err := writeSync(ctx, b.s.cfg.DB, func(tx *db.Tx) error {
		if err := b.s.snapshots.keepPresent(tx, b.present, b.name); err != nil {
			return err
		}
		needed, err := inWorkspace(tx, b.was.workspaceID)
		if err != nil {
			return err
		}
		b.drop = b.r.owned && !needed
		if err := b.row.keepDisk(tx, b.was.disk); err != nil {
			return err
		}
		if err := b.s.cfg.Workspaces.Swap(tx, b.was.workspaceID, b.row.workspace, b.was.Workspace+"-"+b.name, !b.drop); err != nil {
			return err
		}
		if err := b.row.claim.Bind(tx, string(b.present.ID)); err != nil {
			return err
		}
		if err := b.wentBack(tx, *b.from); err != nil {
			return err
		}
		if err := b.s.table.admit(tx, then); err != nil {
			return err
		}
		return b.s.table.move(tx, then)
	})
	if err == nil {
		*b.r = then
	}
	return err
}

// swapBack undoes swap.
func (b *restoring) swapBack(ctx context.Context) error {
	if b.s.shutdown.ctx.Err() != nil {
		return ending() // the next daemon continues
	}
	if b.lost != nil || b.r.workspaceID != b.row.workspace {
		return b.lost
	}
	err := writeSync(ctx, b.s.cfg.DB, func(tx *db.Tx) error {
		if err := b.s.snapshots.unkeepPresent(tx, b.present); err != nil {
			return err
		}
		if err := b.s.cfg.Workspaces.Swap(tx, b.row.workspace, b.was.workspaceID, string(b.row.workspace), false); err != nil {
			return err
		}
		if err := b.row.claim.Bind(tx, ""); err != nil {
			return err
		}
		if err := b.wentBack(tx, b.present); err != nil {
			return err
		}
		return b.s.table.move(tx, b.was)
	})
	if err == nil {
		*b.r = b.was
	}
	return err
}

func (b *restoring) wentBack(tx *db.Tx, at snapshot) error {
	if at.Stopped {
		return wentBack(tx, b.r.ID, time.Time{})
	}
	return wentBack(tx, b.r.ID, at.CreatedAt)
}

// resume resumes the computer from the snapshot. If that fails it can be undone, since only its new
// workspace has changed.
func (b *restoring) resume(ctx context.Context) error {
	if b.from.Stopped {
		if err := b.s.runRows.loseAll(ctx, b.r.ID, ""); err != nil {
			return err
		}
		return b.s.terminalRows.loseAll(ctx, b.r.ID)
	}
	m := &transition{s: b.s, r: b.r, from: b.from, before: b.r.disk, repeats: true}
	up := func(ctx context.Context) error { _, err := m.resumed(ctx); return err }
	err := m.forward(ctx, "resume", append(m.resume(), step{"agent", up, nothing}))
	m.keepStuck()
	b.lost = m.stuck
	return err
}

// tidy removes what the restored computer does not need.
func (b *restoring) tidy(ctx context.Context) {
	s, left := b.s, b.was.workspaceID
	s.log.InfoContext(ctx, "computer restored", "computer", b.r.ID, "name", b.r.Name, "snapshot", b.from.ID, "present", b.present.ID, "state", b.r.State)
	err := b.forget(ctx)
	if err == nil && b.drop {
		err = s.cfg.Workspaces.Remove(ctx, left)
	}
	if err != nil { // the next daemon continues
		s.log.WarnContext(ctx, "clean up after restore", "computer", b.r.ID, "workspace", left, "err", err)
	}
}
