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
	"holt/internal/engine/machine"
)

// keeper puts the snapshots that stay into the archive, one after the other beside
// all else, and takes the memory of those that are there off this disk when all
// together take too much of it.
type keeper struct {
	work bell // there may be something to do

	mu      sync.Mutex
	storing holt.SnapshotID // the one that is on its way; ""
	cancel  context.CancelFunc
	stored  chan struct{}           // closed when it is not any more
	users   map[holt.SnapshotID]int // of memory that must stay here
	fetches singleflight.Group
}

func newKeeper() *keeper {
	return &keeper{work: newBell(), users: map[holt.SnapshotID]int{}}
}

// begin says that a snapshot is being stored until done is called; forget cancels it.
func (k *keeper) begin(ctx context.Context, id holt.SnapshotID) (_ context.Context, done func()) {
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

// forget returns once a snapshot whose row says that it goes is not being stored any more.
func (k *keeper) forget(id holt.SnapshotID) {
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

// keepEvery is how often what could not be stored is tried again.
const keepEvery = time.Minute

// keep does the keeper's work until ctx ends.
func (s memory) keep(ctx context.Context) {
	for ctx.Err() == nil {
		s.keepRound(ctx)
		timer := time.NewTimer(keepEvery)
		select {
		case <-s.keeper.work:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// keepRound stores what is to be: what was asked for, and, while it takes to make
// room, what computers are paused at. One that fails is left for the next round.
func (s memory) keepRound(ctx context.Context) {
	over := s.evict(ctx, 0)
	all, err := s.snapshots.list(ctx, `WHERE state = 'ready' AND NOT stored AND (kind = 'manual' OR `+pausedAt+`) ORDER BY kind <> 'manual', created, id`)
	if err != nil {
		s.log.WarnContext(ctx, "look for snapshots to store", "err", err)
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
			s.log.InfoContext(ctx, "snapshot is in the archive", "computer", m.ComputerID, "snapshot", m.ID, "ms", time.Since(began).Milliseconds())
		case ctx.Err() == nil && !s.isGone(ctx, m):
			if holt.CodeOf(err) == holt.OutOfSpace { // a part of it is no use
				s.vault.dropOrSay(ctx, string(m.ID))
			}
			s.log.ErrorContext(ctx, "a snapshot is not in the archive yet; trying again later", "snapshot", m.ID, "again_in", keepEvery, "err", err)
		}
		over = s.evict(ctx, 0)
	}
	if err := s.renewRound(ctx); err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "merged root disks are not in the archive yet; trying again later", "again_in", keepEvery, "err", err)
	}
}

// renewRound stores the disks that were merged beneath snapshots in the archive, and drops what those
// were once no snapshot there lies over them.
func (s memory) renewRound(ctx context.Context) error {
	all, err := s.snapshots.list(ctx, `WHERE `+outdated+` ORDER BY created, id`)
	for _, m := range all {
		if failed := s.renew(ctx, m); failed != nil && ctx.Err() == nil && !s.isGone(ctx, m) {
			err = errors.Join(err, fmt.Errorf("snapshot %s: %w", m.ID, failed))
		}
	}
	return errors.Join(err, s.disks.dropLeft(ctx))
}

// renew has a snapshot in the archive lie over the disks that there are now.
func (s memory) renew(ctx context.Context, m snapshot) error {
	s.disks.still.Lock()
	defer s.seats.idle.ring()
	defer s.disks.still.Unlock()
	ctx, done := s.keeper.begin(ctx, m.ID)
	defer done()
	if _, err := s.snapshots.get(ctx, m.ID); err != nil {
		return err // it has begun to go before this began
	}
	a, err := s.vault.about(ctx, string(m.ID))
	if code := holt.CodeOf(err); code == holt.NotFound || code == holt.Corrupt {
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
		err = s.cfg.point("keep/renew")
	}
	if err == nil {
		err = s.vault.finish(ctx, string(m.ID), a)
	}
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	return s.snapshots.isStored(ctx, m.ID, grown)
}

// roomFor fails with OutOfSpace if what the archive has not yet of a snapshot, its files and
// its disks, may be too much for the packs' disk.
func (s memory) roomFor(ctx context.Context, m snapshot, chain []layer, names []string) error {
	most := int64(0)
	for _, name := range names {
		n, err := s.vault.missing(ctx, string(m.ID), filepath.Join(s.snapshots.path(m.ID), name), name)
		if err != nil {
			return err
		}
		most += n
	}
	for _, l := range chain {
		n, err := s.vault.missing(ctx, string(l.space), s.disks.path(l.id), diskFile)
		if err != nil {
			return err
		}
		most += n
	}
	return s.vault.room(most)
}

// storeDisks puts the disks of a chain into the archive, the lowest first, and names them in a.
func (s memory) storeDisks(ctx context.Context, chain []layer, a *about) (grown int64, err error) {
	a.Disks = nil
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		var n int64
		n, err = s.storeDisk(ctx, chain[i:], a.Image)
		grown += n
		a.Disks = slices.Insert(a.Disks, 0, chain[i].space)
	}
	return grown, err
}

// storeDisk puts the first disk of a chain into the archive.
func (s memory) storeDisk(ctx context.Context, chain []layer, image string) (grown int64, err error) {
	if len(chain) > 1 {
		return s.disks.store(ctx, chain[0], "", image)
	}
	base, err := s.cfg.Engine.DiskBase(ctx, s.disks.path(chain[0].id))
	if err != nil {
		return 0, err
	}
	if base.Format == "" || base.Format == "raw" {
		base.Path = "" // the image's root
	}
	return s.disks.store(ctx, chain[0], base.Path, image)
}

// isGone says whether a snapshot was deleted meanwhile.
func (s memory) isGone(ctx context.Context, m snapshot) bool {
	_, err := s.snapshots.get(ctx, m.ID)
	return holt.CodeOf(err) == holt.NotFound
}

// pausedAt is true of a snapshot that its computer is paused at.
const pausedAt = `EXISTS (SELECT 1 FROM computer c WHERE c.id = snapshot.computer AND c.snapshot = snapshot.id AND c.state = 'paused')`

// store puts a snapshot into the archive: its frozen disks, the lowest first, its files, and
// last what it is. What a call before this one has stored is left.
func (s memory) store(ctx context.Context, m snapshot) error {
	if err := s.cfg.point("keep/still"); err != nil {
		return err
	}
	s.disks.still.Lock() // a merge may have it for minutes: before begin, so that forget never waits for that
	defer s.seats.idle.ring()
	defer s.disks.still.Unlock()
	ctx, done := s.keeper.begin(ctx, m.ID)
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
	a := about{Snapshot: &m.Snapshot, Workspace: m.workspace, Template: r.Template, DiskSizeMB: r.DiskSizeMB, Image: r.image}
	grown, err := s.storeDisks(ctx, chain, &a)
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	for _, name := range names {
		f, n, failed := s.vault.store(ctx, string(m.ID), filepath.Join(dir, name), name)
		if (name == inventoryFile || name == machine.InitrdFile) && errors.Is(failed, fs.ErrNotExist) {
			continue
		}
		a.Files, grown = append(a.Files, f), grown+n
		if err = failed; err != nil {
			break
		}
	}
	if err == nil {
		err = s.vault.finish(ctx, string(m.ID), a)
	}
	if err == nil {
		err = s.cfg.point("keep/stored")
	}
	if err != nil {
		return errors.Join(err, s.snapshots.grew(ctx, m.ID, grown))
	}
	return s.snapshots.isStored(ctx, m.ID, grown)
}
