package computer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Snapshots is the snapshots of all computers. A snapshot is named by its id, by a name that only
// one has, or as COMPUTER@SNAPSHOT.
type Snapshots struct{ s *Store }

func (s *Store) Snapshots() *Snapshots { return &Snapshots{s} }

// List returns the snapshots of a computer, or of all with "", oldest first.
func (m *Snapshots) List(ctx context.Context, computer string) ([]holt.Snapshot, error) {
	var id holt.ComputerID
	if computer != "" {
		r, err := m.s.table.find(ctx, computer)
		if err != nil {
			return nil, err
		}
		id = r.ID
	}
	all, err := m.s.snapshots.list(ctx, `WHERE state = 'ready' AND (?1 = '' OR computer = ?1) AND `+ofTenant(2)+` ORDER BY created, id`, id, holt.Confined(ctx))
	if err != nil {
		return nil, err
	}
	list := make([]holt.Snapshot, 0, len(all))
	for _, one := range all {
		shown, err := m.shown(ctx, one)
		if err != nil {
			return nil, err
		}
		list = append(list, shown)
	}
	return list, nil
}

// shown adds to a snapshot what its row does not have.
func (m *Snapshots) shown(ctx context.Context, one snapshot) (_ holt.Snapshot, err error) {
	if one.Workspace == "" { // a restore has left it
		if _, one.Workspace, err = m.s.cfg.Workspaces.Find(ctx, string(one.workspace)); err != nil && holt.CodeOf(err) != holt.NotFound {
			return one.Snapshot, err
		}
	}
	one.Forks, err = m.s.snapshots.forksOf(ctx, one.ID)
	return one.Snapshot, err
}

func (m *Snapshots) Get(ctx context.Context, ref string) (holt.Snapshot, error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return holt.Snapshot{}, err
	}
	return m.shown(ctx, one)
}

// Fork makes computers from a snapshot; see [Memory.Fork].
func (m *Snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return holt.ForkedComputers{}, err
	}
	spec.At = string(one.ID)
	return m.s.Memory().Fork(ctx, string(one.ComputerID), spec, key)
}

// Delete removes a snapshot. Its forks stay, with what they share with it. A workspace that a
// restore left is removed with its last snapshot, if it was made with the computer.
//
// Errors: NotFound, Conflict (its computer is paused at it, or the workspace to be removed is
// mounted on the host).
func (m *Snapshots) Delete(ctx context.Context, ref, key string) (holt.SnapshotFreed, error) {
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.SnapshotFreed, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.SnapshotFreed]{
			Key: key, Method: "snapshot.delete", Request: ref,
			Act: func(ctx context.Context, claim *idempotency.Claim) (holt.SnapshotFreed, error) {
				return m.delete(ctx, ref, claim)
			},
			// What was being deleted was removed when the daemon started.
			Again: func(context.Context, string) (holt.SnapshotFreed, error) { return holt.SnapshotFreed{}, nil },
		})
	})
}

func (m *Snapshots) delete(ctx context.Context, ref string, claim *idempotency.Claim) (freed holt.SnapshotFreed, err error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return freed, err
	}
	id := one.ID
	unlock, err := m.s.machines.lock(ctx, one.ComputerID) // excludes forks
	if err != nil {
		return freed, err
	}
	defer unlock()
	if one, err = m.s.snapshots.get(ctx, id); err != nil { // another call may have deleted it meanwhile
		return freed, err
	}
	if freed.Forks, err = m.s.snapshots.forksOf(ctx, id); err != nil {
		return freed, err
	}
	if last, err := m.s.snapshotter.lastOf(ctx, one); err != nil {
		return freed, err
	} else if last {
		if _, freed.Workspace, err = m.s.cfg.Workspaces.Find(ctx, string(one.workspace)); err != nil {
			return freed, err
		}
	}
	ok, err := m.s.snapshots.markDeleting(ctx, id, claim)
	if err != nil {
		return freed, err
	}
	if !ok {
		return freed, m.needed(ctx, one)
	}
	freed.Archived = one.ArchivedBytes
	freed.Bytes, err = m.s.snapshotter.removeSnapshot(ctx, one)
	return freed, err
}

// needed is the error of a snapshot that cannot be deleted.
func (m *Snapshots) needed(ctx context.Context, one snapshot) error {
	r, err := m.s.table.find(ctx, string(one.ComputerID))
	if err != nil {
		return err
	}
	if r.snapshot == one.ID && (r.State == holt.ComputerPausing || r.State == holt.ComputerPaused || r.State == holt.ComputerResuming) {
		return holt.Errorf(holt.Conflict, "%s is paused at the snapshot %s", r.Name, one.ID).
			WithHint("resume it with holt computer resume %s, or stop it, which discards its memory", r.Name)
	}
	return holt.Errorf(holt.Conflict, "a restore of %s to the snapshot %s is not finished", r.Name, one.ID).
		WithHint("the next start of the daemon finishes or undoes it")
}

// removeSnapshot removes a snapshot, its row last, and the disks that only it needed. It returns
// how many bytes that freed.
func (s *snapshotter) removeSnapshot(ctx context.Context, m snapshot) (freed int64, err error) {
	s.archiver.forget(m.ID)
	freed = s.snapshots.allocated(m.ID)
	if err := s.cfg.failpoint("snapshot/files"); err != nil {
		return 0, err
	}
	if err := os.RemoveAll(s.snapshots.path(m.ID)); err != nil {
		return 0, fmt.Errorf("remove snapshot: %w", err)
	}
	last, err := s.lastOf(ctx, m)
	if err == nil && last {
		err = s.cfg.Workspaces.Remove(ctx, m.workspace)
	} else if err == nil {
		err = s.cfg.Workspaces.Forget(ctx, m.workspace, m.checkpoint())
	}
	if err != nil {
		return 0, err
	}
	s.archiver.archive.TryDrop(ctx, string(m.ID))
	if err := s.thaw(ctx, m.disk); err != nil {
		return 0, err
	}
	if err := s.cfg.failpoint("snapshot/row"); err != nil {
		return 0, err
	}
	if err := s.snapshots.erase(ctx, m.ID); err != nil {
		return 0, err
	}
	disks, err := s.disks.collect(ctx)
	if lost := s.disks.dropLeft(ctx); lost != nil {
		s.log.WarnContext(ctx, "remove merged disks from the archive; will retry", "err", lost)
	}
	s.machines.idle.notify() // disks may be needed by nothing but another now
	return freed + disks, err
}

// thaw gives a computer's disk a new name in the archive, after a snapshot froze it and was undone.
func (s *snapshotter) thaw(ctx context.Context, id holt.DiskID) error {
	thawed, err := s.disks.list(ctx, `SELECT disk FROM computer WHERE disk = ? AND disk <> ''`, id)
	if err != nil || len(thawed) == 0 {
		return err
	}
	return writeSync(ctx, s.cfg.DB, func(tx *db.Tx) error { return s.disks.renew(tx, id) })
}

// lastOf reports whether a workspace is removed with a snapshot: a restore left it, nothing else
// needs it, and it was made with the computer. Conflict if the host has it mounted.
func (s *snapshotter) lastOf(ctx context.Context, m snapshot) (bool, error) {
	last, err := s.snapshots.lastOf(ctx, m)
	if err != nil || !last {
		return false, err
	}
	r, err := s.table.find(ctx, string(m.ComputerID))
	if err != nil || !r.owned {
		return false, err
	}
	return true, s.cfg.Workspaces.Unmounted(ctx, m.workspace)
}

// allocated is the size of a snapshot's image on disk, bytes.
func (t snapshotTable) allocated(id holt.SnapshotID) int64 {
	dir := t.path(id)
	bytes := archive.Allocated(dir+"/"+machine.StateFile) + archive.Allocated(dir+"/"+inventoryFile)
	for _, part := range machine.MemoryParts(dir) {
		bytes += archive.Allocated(dir + "/" + part)
	}
	var st unix.Stat_t
	if initrd := dir + "/" + machine.InitrdFile; unix.Lstat(initrd, &st) == nil && st.Nlink == 1 { // else others have it too
		bytes += archive.Allocated(initrd)
	}
	return bytes
}

// keptSnapshots is how many automatic snapshots of a computer are kept.
const keptSnapshots = 3

// prune removes automatic snapshots: all but the newest of each computer, and the oldest of all
// that do not fit in the cache. It keeps those that a computer is paused at, those in use, those of
// locked computers other than own, and used, which is about to be used.
func (s *snapshotter) prune(ctx context.Context, own holt.ComputerID, used holt.SnapshotID) {
	all, err := s.snapshots.list(ctx, `WHERE state = 'ready' AND kind <> 'manual' ORDER BY created DESC, id`)
	if err != nil {
		s.log.WarnContext(ctx, "prune snapshots", "err", err)
		return
	}
	most, bytes, has := s.archiver.snapshotCache(), int64(0), map[holt.ComputerID]int{}
	for i, m := range all {
		has[m.ComputerID]++
		bytes += m.Bytes
		if i == 0 || m.ID == used || has[m.ComputerID] <= keptSnapshots && bytes <= most { // the newest is about to be used
			continue
		}
		if s.archiver.used(m.ID) { // a restore may resume its computer first
			continue
		}
		unlock, free := func() {}, true
		if m.ComputerID != own {
			unlock, free = s.machines.tryLock(ctx, m.ComputerID)
		}
		if !free {
			continue
		}
		_, err := s.lastOf(ctx, m)
		done := false
		if err == nil {
			done, err = s.snapshots.markDeletingAutomatic(ctx, m.ID)
		}
		if err == nil && done {
			bytes -= m.Bytes
			_, err = s.removeSnapshot(ctx, m)
		}
		unlock()
		if err != nil {
			s.log.WarnContext(ctx, "prune snapshot", "snapshot", m.ID, "err", err) // the next daemon continues
		}
	}
}

// used reports whether the memory of a snapshot is in use; see [archiver.use].
func (k *archiver) used(id holt.SnapshotID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.users[id] > 0
}

// snapshotCache is the size of the cache, bytes: as configured, or an eighth of the disk.
func (s *archiver) snapshotCache() int64 {
	var st unix.Statfs_t
	if s.cfg.SnapshotCache == 0 && unix.Statfs(s.snapshots.dir, &st) == nil {
		return int64(st.Blocks) / 8 * st.Bsize
	}
	return s.cfg.SnapshotCache
}

// tidySnapshots finishes interrupted deletes, and removes directories that are no snapshot on
// record. The next daemon retries a failure.
func (s *snapshotter) tidySnapshots(ctx context.Context) error {
	if err := os.MkdirAll(s.snapshots.dir, 0o700); err != nil {
		return hosterror.Full(fmt.Errorf("make directory of snapshots: %w", err))
	}
	all, err := s.snapshots.list(ctx, `ORDER BY id`)
	if err != nil {
		return err
	}
	for _, m := range all {
		half, _ := filepath.Glob(filepath.Join(s.snapshots.path(m.ID), "*"+archive.Fetching)) // never fails: the pattern is ours
		for _, path := range half {
			if err := os.Remove(path); err != nil {
				s.log.ErrorContext(ctx, "remove partly fetched file", "snapshot", m.ID, "err", err)
			}
		}
		if m.state != snapshotDeleting {
			continue
		}
		if _, err := s.removeSnapshot(ctx, m); err != nil {
			s.log.ErrorContext(ctx, "remove snapshot", "computer", m.ComputerID, "snapshot", m.ID, "err", err)
		}
	}
	entries, err := os.ReadDir(s.snapshots.dir)
	if err != nil {
		return fmt.Errorf("read directory of snapshots: %w", err)
	}
	for _, e := range entries {
		_, known := slices.BinarySearchFunc(all, holt.SnapshotID(e.Name()), func(m snapshot, id holt.SnapshotID) int { return cmp.Compare(m.ID, id) })
		if known {
			continue
		}
		if err := os.RemoveAll(s.snapshots.dir + "/" + e.Name()); err != nil {
			s.log.ErrorContext(ctx, "remove directory that is no snapshot on record", "snapshot", e.Name(), "err", err)
		}
	}
	return ctx.Err()
}
