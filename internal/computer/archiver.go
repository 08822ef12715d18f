package computer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
)

// archiver stores snapshots in the archive, one at a time in the background, and evicts the memory
// of archived ones from this disk when the snapshots together take too much of it.
type archiver struct {
	*registry
	archive   *archive.Archive
	snapshots snapshotTable
	disks     *disks
	work      notification // there may be something to do

	mu      sync.Mutex
	storing holt.SnapshotID // the one that is being stored; ""
	cancel  context.CancelFunc
	stored  chan struct{}           // closed once storing has ended
	users   map[holt.SnapshotID]int // of memory that must stay on this disk
	fetches singleflight.Group
}

func newArchiver(g *registry, a *archive.Archive, snapshots snapshotTable, disks *disks) *archiver {
	return &archiver{registry: g, archive: a, snapshots: snapshots, disks: disks, work: newNotification(), users: map[holt.SnapshotID]int{}}
}

// begin records that a snapshot is being stored until done is called; forget cancels that.
func (k *archiver) begin(ctx context.Context, id holt.SnapshotID) (_ context.Context, done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, k.cancel = context.WithCancel(ctx)
	cancel, stored := k.cancel, make(chan struct{})
	k.storing, k.stored = id, stored
	return ctx, func() {
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.storing = ""
		close(stored)
	}
}

// forget returns once a snapshot that is being deleted is no longer being stored.
func (k *archiver) forget(id holt.SnapshotID) {
	k.mu.Lock()
	if k.storing != id {
		k.mu.Unlock()
		return
	}
	k.cancel()
	stored := k.stored
	k.mu.Unlock()
	<-stored
}

// keepEvery is how often a failed store is retried.
const keepEvery = time.Minute

// run does the archiver's work until ctx ends.
func (s *archiver) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.keepRound(ctx)
		timer := time.NewTimer(keepEvery)
		select {
		case <-s.work:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// keepRound archives the snapshots that users asked for and, if it takes eviction to make room,
// those that computers are paused at. A failed one waits for the next round.
func (s *archiver) keepRound(ctx context.Context) {
	over := s.evict(ctx, 0)
	all, err := s.snapshots.list(ctx, `WHERE state = 'ready' AND NOT stored AND (kind = 'manual' OR `+pausedAt+`) ORDER BY kind <> 'manual', created, id`)
	if err != nil {
		s.log.WarnContext(ctx, "list snapshots to archive", "err", err)
	}
	for _, m := range all {
		if ctx.Err() != nil {
			return
		}
		if m.Kind != holt.SnapshotManual && over <= 0 {
			break
		}
		began := time.Now()
		err := s.store(ctx, m)
		switch {
		case err == nil:
			s.log.InfoContext(ctx, "snapshot archived", "computer", m.ComputerID, "snapshot", m.ID, "ms", time.Since(began).Milliseconds())
		case ctx.Err() == nil && !s.isGone(ctx, m):
			if holt.CodeOf(err) == holt.OutOfSpace { // a part of it is no use
				s.archive.TryDrop(ctx, string(m.ID))
			}
			s.log.ErrorContext(ctx, "archive snapshot; will retry", "snapshot", m.ID, "again_in", keepEvery, "err", err)
		}
		over = s.evict(ctx, 0)
	}
	if err := s.renewRound(ctx); err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "archive merged root disks; will retry", "again_in", keepEvery, "err", err)
	}
}

// renewRound archives disks that were merged beneath archived snapshots, and drops the former ones
// once no archived snapshot needs them.
func (s *archiver) renewRound(ctx context.Context) error {
	all, err := s.snapshots.list(ctx, `WHERE `+outdated+` ORDER BY created, id`)
	for _, m := range all {
		if failed := s.renew(ctx, m); failed != nil && ctx.Err() == nil && !s.isGone(ctx, m) {
			err = errors.Join(err, fmt.Errorf("snapshot %s: %w", m.ID, failed))
		}
	}
	return errors.Join(err, s.disks.dropLeft(ctx))
}

// renew makes an archived snapshot refer to the disks that there are now.
func (s *archiver) renew(ctx context.Context, m snapshot) error {
	s.disks.still.Lock()
	defer s.machines.idle.notify()
	defer s.disks.still.Unlock()
	ctx, done := s.begin(ctx, m.ID)
	defer done()
	if _, err := s.snapshots.get(ctx, m.ID); err != nil {
		return err // it has begun to go before this began
	}
	a, err := s.archive.About(ctx, string(m.ID))
	if archive.Incomplete(err) {
		_, lost := os.Lstat(filepath.Join(s.snapshots.path(m.ID), machine.MemoryFile))
		if lost == nil || m.Stopped {
			return s.snapshots.isNotStored(ctx, m.ID) // all of it is here, and is stored again
		}
	}
	if err != nil {
		return err
	}
	chain, err := s.disks.chain(ctx, m.disk)
	if err == nil {
		err = s.roomFor(ctx, m, chain, nil)
	}
	if err != nil {
		return err
	}
	grown, err := s.storeDisks(ctx, chain, &a)
	if err == nil {
		err = s.cfg.failpoint("keep/renew")
	}
	if err == nil {
		err = s.archive.Finish(ctx, string(m.ID), a)
	}
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	return s.snapshots.isStored(ctx, m.ID, grown)
}

// roomFor returns OutOfSpace if the packs' disk may have no room for what the archive lacks of a
// snapshot.
func (s *archiver) roomFor(ctx context.Context, m snapshot, chain []layer, names []string) error {
	most := int64(0)
	for _, name := range names {
		n, err := s.archive.Missing(ctx, string(m.ID), filepath.Join(s.snapshots.path(m.ID), name), name)
		if err != nil {
			return err
		}
		most += n
	}
	for _, l := range chain {
		n, err := s.archive.Missing(ctx, string(l.space), s.disks.path(l.id), diskFile)
		if err != nil {
			return err
		}
		most += n
	}
	return s.archive.CheckRoom(most)
}

// storeDisks archives the disks of a chain, the lowest first, and lists them in a.
func (s *archiver) storeDisks(ctx context.Context, chain []layer, a *archive.About) (grown int64, err error) {
	a.Disks = nil
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		var n int64
		n, err = s.storeDisk(ctx, chain[i:], a.Image)
		grown += n
		a.Disks = slices.Insert(a.Disks, 0, chain[i].space)
	}
	return grown, err
}

// storeDisk archives the first disk of a chain.
func (s *archiver) storeDisk(ctx context.Context, chain []layer, image string) (grown int64, err error) {
	if len(chain) > 1 {
		return s.disks.store(ctx, chain[0], "", image)
	}
	base, err := s.cfg.Engines.Of(chain[0].engine).DiskBase(ctx, s.disks.path(chain[0].id))
	if err != nil {
		return 0, err
	}
	if base.Format == "" || base.Format == "raw" {
		base.Path = "" // the image's root
	}
	return s.disks.store(ctx, chain[0], base.Path, image)
}

// isGone reports whether a snapshot was deleted meanwhile.
func (s *archiver) isGone(ctx context.Context, m snapshot) bool {
	_, err := s.snapshots.get(ctx, m.ID)
	return holt.CodeOf(err) == holt.NotFound
}

// pausedAt is true of a snapshot that its computer is paused at.
const pausedAt = `EXISTS (SELECT 1 FROM computer c WHERE c.id = snapshot.computer AND c.snapshot = snapshot.id AND c.state = 'paused')`

// store archives a snapshot: its frozen disks, its files and, last, its description. What an
// interrupted call has stored stays.
func (s *archiver) store(ctx context.Context, m snapshot) error {
	if err := s.cfg.failpoint("keep/still"); err != nil {
		return err
	}
	s.disks.still.Lock() // a merge may have it for minutes: before begin, so that forget never waits for that
	defer s.machines.idle.notify()
	defer s.disks.still.Unlock()
	ctx, done := s.begin(ctx, m.ID)
	defer done()
	r, err := s.table.find(ctx, string(m.ComputerID))
	if err == nil {
		_, err = s.snapshots.get(ctx, m.ID) // it has begun to go before this began
	}
	if err != nil {
		return err
	}
	chain, err := s.disks.chain(ctx, m.disk)
	if err != nil {
		return err
	}
	dir := s.snapshots.path(m.ID)
	// A directory with the record has all but what there may be none of.
	names := machine.MemoryParts(dir)
	slices.Reverse(names) // so the first is fetched last: where that is, all of it is
	names = append(names, machine.StateFile, inventoryFile, machine.InitrdFile, machine.RecordFile)
	if m.Stopped {
		names = nil // it is its disks
	}
	if err := s.roomFor(ctx, m, chain, names); err != nil {
		return err
	}
	a := archive.About{Snapshot: &m.Snapshot, Workspace: m.workspace, Template: r.Template, DiskSizeMB: r.DiskSizeMB, Image: r.image}
	grown, err := s.storeDisks(ctx, chain, &a)
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	for _, name := range names {
		f, n, failed := s.archive.Put(ctx, string(m.ID), filepath.Join(dir, name), name)
		if (name == inventoryFile || name == machine.InitrdFile) && errors.Is(failed, fs.ErrNotExist) {
			continue
		}
		a.Files, grown = append(a.Files, f), grown+n
		if err = failed; err != nil {
			break
		}
	}
	if err == nil {
		err = s.archive.Finish(ctx, string(m.ID), a)
	}
	if err == nil {
		err = s.cfg.failpoint("keep/stored")
	}
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	return s.snapshots.isStored(ctx, m.ID, grown)
}
