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
	"holt/db"
	"holt/machine"
)

// Moments are the moments of all computers. Each is named by its id, by a name that only one
// has, or as COMPUTER@MOMENT.
type Moments struct{ s *Store }

// Moments returns the moments of all computers.
func (s *Store) Moments() *Moments { return &Moments{s} }

// List returns the moments of a computer, or of all with "", oldest first.
func (m *Moments) List(ctx context.Context, computer string) ([]holt.Moment, error) {
	var id holt.ComputerID
	if computer != "" {
		r, err := m.s.table.find(ctx, computer)
		if err != nil {
			return nil, err
		}
		id = r.ID
	}
	all, err := m.s.moments.list(ctx, `WHERE state = 'ready' AND (?1 = '' OR computer = ?1) AND `+ofTenant(2)+` ORDER BY created, id`, id, holt.Confined(ctx))
	if err != nil {
		return nil, err
	}
	list := make([]holt.Moment, 0, len(all))
	for _, one := range all {
		shown, err := m.shown(ctx, one)
		if err != nil {
			return nil, err
		}
		list = append(list, shown)
	}
	return list, nil
}

// shown adds to a moment what its row does not have.
func (m *Moments) shown(ctx context.Context, one moment) (_ holt.Moment, err error) {
	if one.Workspace == "" { // a restore has left it
		if _, one.Workspace, err = m.s.cfg.Workspaces.Find(ctx, string(one.workspace)); err != nil && holt.CodeOf(err) != holt.NotFound {
			return one.Moment, err
		}
	}
	one.Forks, err = m.s.moments.forksOf(ctx, one.ID)
	return one.Moment, err
}

// Get returns a moment.
func (m *Moments) Get(ctx context.Context, ref string) (holt.Moment, error) {
	one, err := m.s.moments.find(ctx, ref)
	if err != nil {
		return holt.Moment{}, err
	}
	return m.shown(ctx, one)
}

// Fork makes computers of a moment; see [Memory.Fork].
func (m *Moments) Fork(ctx context.Context, ref string, spec holt.ComputerForkSpec, key string) (holt.ForkedComputers, error) {
	one, err := m.s.moments.find(ctx, ref)
	if err != nil {
		return holt.ForkedComputers{}, err
	}
	spec.At = string(one.ID)
	return m.s.Memory().Fork(ctx, string(one.ComputerID), spec, key)
}

// Delete removes a moment. Its forks go on: what they share with it stays as
// long as they need it. A workspace that a restore left goes with its last moment, if
// it was made with the computer.
//
// Errors: NotFound, Conflict (its computer is paused at it, or the workspace that goes
// with it is mounted on the host).
func (m *Moments) Delete(ctx context.Context, ref, key string) (holt.MomentFreed, error) {
	return detach(ctx, m.s.gate, func(ctx context.Context) (holt.MomentFreed, error) {
		return Once(ctx, m.s.cfg.Keys, Call[holt.MomentFreed]{
			Key: key, Method: "moment.delete", Request: ref,
			Act: func(ctx context.Context, claim *Claim) (holt.MomentFreed, error) { return m.delete(ctx, ref, claim) },
			// What was being deleted was removed when the daemon started.
			Again: func(context.Context, string) (holt.MomentFreed, error) { return holt.MomentFreed{}, nil },
		})
	})
}

func (m *Moments) delete(ctx context.Context, ref string, claim *Claim) (freed holt.MomentFreed, err error) {
	one, err := m.s.moments.find(ctx, ref)
	if err != nil {
		return freed, err
	}
	id := one.ID
	unlock, err := m.s.seats.lock(ctx, one.ComputerID) // nobody forks it meanwhile
	if err != nil {
		return freed, err
	}
	defer unlock()
	if one, err = m.s.moments.get(ctx, id); err != nil { // another call may have deleted it meanwhile
		return freed, err
	}
	if freed.Forks, err = m.s.moments.forksOf(ctx, id); err != nil {
		return freed, err
	}
	if last, err := (memory{m.s}).lastOf(ctx, one); err != nil {
		return freed, err
	} else if last {
		if _, freed.Workspace, err = m.s.cfg.Workspaces.Find(ctx, string(one.workspace)); err != nil {
			return freed, err
		}
	}
	ok, err := m.s.moments.condemn(ctx, id, claim)
	if err != nil {
		return freed, err
	}
	if !ok {
		return freed, m.needed(ctx, one)
	}
	freed.Archived = one.ArchivedBytes
	freed.Bytes, err = memory{m.s}.removeMoment(ctx, one)
	return freed, err
}

// needed says why a moment cannot be deleted.
func (m *Moments) needed(ctx context.Context, one moment) error {
	r, err := m.s.table.find(ctx, string(one.ComputerID))
	if err != nil {
		return err
	}
	if r.moment == one.ID && (r.State == holt.ComputerPausing || r.State == holt.ComputerPaused || r.State == holt.ComputerResuming) {
		return holt.Errorf(holt.Conflict, "%s is paused at the moment %s", r.Name, one.ID).
			WithHint("holt computer resume %s first, or stop it, which lets go of its memory", r.Name)
	}
	return holt.Errorf(holt.Conflict, "a restore of %s to the moment %s has not come to its end", r.Name, one.ID).
		WithHint("the daemon's next start settles it")
}

// removeMoment removes what there is of a moment, its row last, and the disks
// that only it needed. It returns how many bytes that freed.
func (s memory) removeMoment(ctx context.Context, m moment) (freed int64, err error) {
	s.keeper.forget(m.ID)
	freed = s.moments.allocated(m.ID)
	if err := s.cfg.point("moment/files"); err != nil {
		return 0, err
	}
	if err := os.RemoveAll(s.moments.path(m.ID)); err != nil {
		return 0, fmt.Errorf("remove moment: %w", err)
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
	if err := s.cfg.point("moment/row"); err != nil {
		return 0, err
	}
	if err := s.moments.erase(ctx, m.ID); err != nil {
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
// moment for which its computer does not go on from another, after all.
func (s memory) thaw(ctx context.Context, id holt.DiskID) error {
	thawed, err := s.disks.list(ctx, `SELECT disk FROM computer WHERE disk = ? AND disk <> ''`, id)
	if err != nil || len(thawed) == 0 {
		return err
	}
	return writeSync(ctx, s.cfg.DB, func(tx *db.Tx) error { return s.disks.renew(tx, id) })
}

// lastOf says whether a workspace goes with a moment: a restore left it, nothing else is in it,
// and it was made with the computer. Conflict while the host has that mounted.
func (s memory) lastOf(ctx context.Context, m moment) (bool, error) {
	last, err := s.moments.lastOf(ctx, m)
	if err != nil || !last {
		return false, err
	}
	r, err := s.table.find(ctx, string(m.ComputerID))
	if err != nil || !r.owned {
		return false, err
	}
	return true, s.cfg.Workspaces.Unmounted(ctx, m.workspace)
}

// allocated is what a moment's image takes of the host's disk, bytes.
func (t momentTable) allocated(id holt.MomentID) int64 {
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

// keptMoments is how many moments that nobody asked for stay of a computer.
const keptMoments = 3

// prune removes moments that nobody asked for: all but a computer's last few,
// and the oldest of all until the rest fits in the cache. Those that a computer
// is paused at stay, those that somebody uses, and those of computers that a verb
// is at work on, unless that is the caller's own; and of that, the one that is about to be used.
func (s memory) prune(ctx context.Context, own holt.ComputerID, used holt.MomentID) {
	all, err := s.moments.list(ctx, `WHERE state = 'ready' AND kind <> 'snapshot' ORDER BY created DESC, id`)
	if err != nil {
		s.log.WarnContext(ctx, "prune moments", "err", err)
		return
	}
	most, bytes, has := s.momentCache(), int64(0), map[holt.ComputerID]int{}
	for i, m := range all {
		has[m.ComputerID]++
		bytes += m.Bytes
		if i == 0 || m.ID == used || has[m.ComputerID] <= keptMoments && bytes <= most { // the newest is about to be used
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
			done, err = s.moments.condemnUnkept(ctx, m.ID)
		}
		if err == nil && done {
			bytes -= m.Bytes
			_, err = s.removeMoment(ctx, m)
		}
		unlock()
		if err != nil {
			s.log.WarnContext(ctx, "prune moment", "moment", m.ID, "err", err) // the next daemon goes on
		}
	}
}

// used says whether somebody uses the memory of a moment; see [memory.use].
func (k *keeper) used(id holt.MomentID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.users[id] > 0
}

// momentCache is how many bytes moments that nobody asked for may take: what was
// said, or an eighth of the disk.
func (s memory) momentCache() int64 {
	var st unix.Statfs_t
	if s.cfg.MomentCache == 0 && unix.Statfs(s.moments.dir, &st) == nil {
		return int64(st.Blocks) / 8 * st.Bsize
	}
	return s.cfg.MomentCache
}

// tidyMoments finishes what a killed daemon was deleting, and removes directories that
// are no moment's. What it cannot, the next daemon tries again.
func (s memory) tidyMoments(ctx context.Context) error {
	if err := os.MkdirAll(s.moments.dir, 0o700); err != nil {
		return HostError(fmt.Errorf("make directory of moments: %w", err))
	}
	all, err := s.moments.list(ctx, `ORDER BY id`)
	if err != nil {
		return err
	}
	for _, m := range all {
		half, _ := filepath.Glob(filepath.Join(s.moments.path(m.ID), "*"+fetching)) // never fails: the pattern is ours
		for _, path := range half {
			if err := os.Remove(path); err != nil {
				s.log.ErrorContext(ctx, "remove half-fetched file", "moment", m.ID, "err", err)
			}
		}
		if m.state != momentDeleting {
			continue
		}
		if _, err := s.removeMoment(ctx, m); err != nil {
			s.log.ErrorContext(ctx, "cannot go on with the removal of a moment", "computer", m.ComputerID, "moment", m.ID, "err", err)
		}
	}
	entries, err := os.ReadDir(s.moments.dir)
	if err != nil {
		return fmt.Errorf("read directory of moments: %w", err)
	}
	for _, e := range entries {
		_, known := slices.BinarySearchFunc(all, holt.MomentID(e.Name()), func(m moment, id holt.MomentID) int { return cmp.Compare(m.ID, id) })
		if known {
			continue
		}
		if err := os.RemoveAll(s.moments.dir + "/" + e.Name()); err != nil {
			s.log.ErrorContext(ctx, "remove moment without a name", "moment", e.Name(), "err", err)
		}
	}
	return ctx.Err()
}
