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
	"holt/internal/engine/machine"
	"holt/internal/store/db"
)

// Snapshots are the snapshots of all computers. Each is named by its id, by a name that only one
// has, or as COMPUTER@SNAPSHOT.
type Snapshots struct{ s *Store }

// Snapshots returns the snapshots of all computers.
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

// Get returns a snapshot.
func (m *Snapshots) Get(ctx context.Context, ref string) (holt.Snapshot, error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return holt.Snapshot{}, err
	}
	return m.shown(ctx, one)
}

// Fork makes computers of a snapshot; see [Memory.Fork].
func (m *Snapshots) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return holt.ForkedComputers{}, err
	}
	spec.At = string(one.ID)
	return m.s.Memory().Fork(ctx, string(one.ComputerID), spec, key)
}

// Delete removes a snapshot. Its forks go on: what they share with it stays as
// long as they need it. A workspace that a restore left goes with its last snapshot, if
// it was made with the computer.
//
// Errors: NotFound, Conflict (its computer is paused at it, or the workspace that goes
// with it is mounted on the host).
func (m *Snapshots) Delete(ctx context.Context, ref, key string) (holt.SnapshotFreed, error) {
	return detach(ctx, m.s.gate, func(ctx context.Context) (holt.SnapshotFreed, error) {
		return Once(ctx, m.s.cfg.Keys, Call[holt.SnapshotFreed]{
			Key: key, Method: "snapshot.delete", Request: ref,
			Act: func(ctx context.Context, claim *Claim) (holt.SnapshotFreed, error) { return m.delete(ctx, ref, claim) },
			// What was being deleted was removed when the daemon started.
			Again: func(context.Context, string) (holt.SnapshotFreed, error) { return holt.SnapshotFreed{}, nil },
		})
	})
}

func (m *Snapshots) delete(ctx context.Context, ref string, claim *Claim) (freed holt.SnapshotFreed, err error) {
	one, err := m.s.snapshots.find(ctx, ref)
	if err != nil {
		return freed, err
	}
	id := one.ID
	unlock, err := m.s.seats.lock(ctx, one.ComputerID) // nobody forks it meanwhile
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
	if last, err := (memory{m.s}).lastOf(ctx, one); err != nil {
		return freed, err
	} else if last {
		if _, freed.Workspace, err = m.s.cfg.Workspaces.Find(ctx, string(one.workspace)); err != nil {
			return freed, err
		}
	}
	ok, err := m.s.snapshots.condemn(ctx, id, claim)
	if err != nil {
		return freed, err
	}
	if !ok {
		return freed, m.needed(ctx, one)
	}
	freed.Archived = one.ArchivedBytes
	freed.Bytes, err = memory{m.s}.removeSnapshot(ctx, one)
	return freed, err
}

// needed says why a snapshot cannot be deleted.
func (m *Snapshots) needed(ctx context.Context, one snapshot) error {
	r, err := m.s.table.find(ctx, string(one.ComputerID))
	if err != nil {
		return err
	}
	if r.snapshot == one.ID && (r.State == holt.ComputerPausing || r.State == holt.ComputerPaused || r.State == holt.ComputerResuming) {
		return holt.Errorf(holt.Conflict, "%s is paused at the snapshot %s", r.Name, one.ID).
			WithHint("holt computer resume %s first, or stop it, which lets go of its memory", r.Name)
	}
	return holt.Errorf(holt.Conflict, "a restore of %s to the snapshot %s has not come to its end", r.Name, one.ID).
		WithHint("the daemon's next start settles it")
}

// removeSnapshot removes what there is of a snapshot, its row last, and the disks
// that only it needed. It returns how many bytes that freed.
func (s memory) removeSnapshot(ctx context.Context, m snapshot) (freed int64, err error) {
	s.keeper.forget(m.ID)
	freed = s.snapshots.allocated(m.ID)
	if err := s.cfg.point("snapshot/files"); err != nil {
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
	s.vault.dropOrSay(ctx, string(m.ID))
	if err := s.thaw(ctx, m.disk); err != nil {
		return 0, err
	}
	if err := s.cfg.point("snapshot/row"); err != nil {
		return 0, err
	}
	if err := s.snapshots.erase(ctx, m.ID); err != nil {
		return 0, err
	}
	disks, err := s.disks.collect(ctx)
	if lost := s.disks.dropLeft(ctx); lost != nil {
		s.log.WarnContext(ctx, "what was merged is removed from the archive later", "err", lost)
	}
	s.seats.idle.ring() // disks may be needed by nothing but another now
	return freed + disks, err
}

// thaw gives a disk that a computer writes to another name in the archive: it was frozen with a
// snapshot for which its computer does not go on from another, after all.
func (s memory) thaw(ctx context.Context, id holt.DiskID) error {
	thawed, err := s.disks.list(ctx, `SELECT disk FROM computer WHERE disk = ? AND disk <> ''`, id)
	if err != nil || len(thawed) == 0 {
		return err
	}
	return writeSync(ctx, s.cfg.DB, func(tx *db.Tx) error { return s.disks.renew(tx, id) })
}

// lastOf says whether a workspace goes with a snapshot: a restore left it, nothing else is in it,
// and it was made with the computer. Conflict while the host has that mounted.
func (s memory) lastOf(ctx context.Context, m snapshot) (bool, error) {
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

// allocated is what a snapshot's image takes of the host's disk, bytes.
func (t snapshotTable) allocated(id holt.SnapshotID) int64 {
	dir := t.path(id)
	bytes := allocated(dir+"/"+machine.StateFile) + allocated(dir+"/"+inventoryFile)
	for _, part := range machine.MemoryParts(dir) {
		bytes += allocated(dir + "/" + part)
	}
	var st unix.Stat_t
	if initrd := dir + "/" + machine.InitrdFile; unix.Lstat(initrd, &st) == nil && st.Nlink == 1 { // else others have it too
		bytes += allocated(initrd)
	}
	return bytes
}

// keptSnapshots is how many snapshots that nobody asked for stay of a computer.
const keptSnapshots = 3

// prune removes snapshots that nobody asked for: all but a computer's last few,
// and the oldest of all until the rest fits in the cache. Those that a computer
// is paused at stay, those that somebody uses, and those of computers that a verb
// is at work on, unless that is the caller's own; and of that, the one that is about to be used.
func (s memory) prune(ctx context.Context, own holt.ComputerID, used holt.SnapshotID) {
	all, err := s.snapshots.list(ctx, `WHERE state = 'ready' AND kind <> 'manual' ORDER BY created DESC, id`)
	if err != nil {
		s.log.WarnContext(ctx, "prune snapshots", "err", err)
		return
	}
	most, bytes, has := s.snapshotCache(), int64(0), map[holt.ComputerID]int{}
	for i, m := range all {
		has[m.ComputerID]++
		bytes += m.Bytes
		if i == 0 || m.ID == used || has[m.ComputerID] <= keptSnapshots && bytes <= most { // the newest is about to be used
			continue
		}
		if s.keeper.used(m.ID) { // a restore lets its computer go on before it goes back to it
			continue
		}
		unlock, free := func() {}, true
		if m.ComputerID != own {
			unlock, free = s.seats.tryLock(ctx, m.ComputerID)
		}
		if !free {
			continue
		}
		_, err := s.lastOf(ctx, m)
		done := false
		if err == nil {
			done, err = s.snapshots.condemnUnkept(ctx, m.ID)
		}
		if err == nil && done {
			bytes -= m.Bytes
			_, err = s.removeSnapshot(ctx, m)
		}
		unlock()
		if err != nil {
			s.log.WarnContext(ctx, "prune snapshot", "snapshot", m.ID, "err", err) // the next daemon goes on
		}
	}
}

// used says whether somebody uses the memory of a snapshot; see [memory.use].
func (k *keeper) used(id holt.SnapshotID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.users[id] > 0
}

// snapshotCache is how many bytes snapshots that nobody asked for may take: what was
// said, or an eighth of the disk.
func (s memory) snapshotCache() int64 {
	var st unix.Statfs_t
	if s.cfg.SnapshotCache == 0 && unix.Statfs(s.snapshots.dir, &st) == nil {
		return int64(st.Blocks) / 8 * st.Bsize
	}
	return s.cfg.SnapshotCache
}

// tidySnapshots finishes what a killed daemon was deleting, and removes directories that
// are no snapshot's. What it cannot, the next daemon tries again.
func (s memory) tidySnapshots(ctx context.Context) error {
	if err := os.MkdirAll(s.snapshots.dir, 0o700); err != nil {
		return HostError(fmt.Errorf("make directory of snapshots: %w", err))
	}
	all, err := s.snapshots.list(ctx, `ORDER BY id`)
	if err != nil {
		return err
	}
	for _, m := range all {
		half, _ := filepath.Glob(filepath.Join(s.snapshots.path(m.ID), "*"+fetching)) // never fails: the pattern is ours
		for _, path := range half {
			if err := os.Remove(path); err != nil {
				s.log.ErrorContext(ctx, "remove half-fetched file", "snapshot", m.ID, "err", err)
			}
		}
		if m.state != snapshotDeleting {
			continue
		}
		if _, err := s.removeSnapshot(ctx, m); err != nil {
			s.log.ErrorContext(ctx, "cannot go on with the removal of a snapshot", "computer", m.ComputerID, "snapshot", m.ID, "err", err)
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
			s.log.ErrorContext(ctx, "remove snapshot without a name", "snapshot", e.Name(), "err", err)
		}
	}
	return ctx.Err()
}
