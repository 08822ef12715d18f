package computer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
)

// use returns once the memory of a snapshot is on this disk, and keeps it there until done is
// called.
//
// Errors: Corrupt (the archive has other bytes than were stored), Unavailable, Timeout, OutOfSpace.
// Then no part of it is here.
func (s *archiver) use(ctx context.Context, m snapshot) (done func(), err error) {
	k := s
	k.mu.Lock()
	k.users[m.ID]++
	k.mu.Unlock()
	done = func() {
		k.mu.Lock()
		if k.users[m.ID]--; k.users[m.ID] == 0 {
			delete(k.users, m.ID)
		}
		k.mu.Unlock()
		k.work.notify()
	}
	for {
		left, err, _ := k.fetches.Do(string(m.ID), func() (any, error) {
			err := s.fetch(ctx, m)
			return ctx.Err() != nil, err
		})
		if err == nil {
			break
		}
		if !left.(bool) || ctx.Err() != nil { // otherwise only the caller that began it has left
			done()
			return nil, err
		}
	}
	if err := s.snapshots.touch(ctx, m.ID); err != nil {
		s.log.WarnContext(ctx, "record use of snapshot", "snapshot", m.ID, "err", err) // it only goes earlier
	}
	return done, nil
}

func (s *archiver) fetch(ctx context.Context, m snapshot) error {
	dir := s.snapshots.path(m.ID)
	if _, err := os.Lstat(filepath.Join(dir, machine.MemoryFile)); err == nil || s.archive.Chunks == nil {
		return nil
	}
	s.evict(ctx, m.report.DataBytes)
	began := time.Now()
	n, err := s.archive.Fetch(ctx, string(m.ID), dir)
	if err != nil {
		s.log.ErrorContext(ctx, "fetch memory of snapshot", "snapshot", m.ID, "err", err)
		if code := holt.CodeOf(err); code == holt.Corrupt || code == holt.NotFound {
			return holt.Errorf(holt.Corrupt, "fetch the memory of the snapshot %s from the archive: %w", m.ID, err).
				WithHint("restore the damaged or missing files that holt archive check lists, then try again")
		}
		return fmt.Errorf("fetch the memory of the snapshot %s from the archive: %w", m.ID, err)
	}
	s.log.InfoContext(ctx, "memory of snapshot fetched", "snapshot", m.ID, "bytes", n, "ms", time.Since(began).Milliseconds())
	return nil
}

// evict removes archived memory from this disk, the least recently used first, until all snapshots
// and more bytes fit in the cache. It returns the bytes that do not fit.
func (s *archiver) evict(ctx context.Context, more int64) (over int64) {
	all, err := s.snapshots.list(ctx, `WHERE state <> 'deleting' ORDER BY max(used, created), id`)
	if err != nil {
		s.log.WarnContext(ctx, "list snapshots to evict", "err", err)
		return 0
	}
	over = more - s.snapshotCache()
	for _, m := range all {
		over += m.Bytes
	}
	for _, m := range all {
		if over <= 0 {
			break
		}
		if !m.Archived || s.archive.Chunks == nil {
			continue
		}
		freed, err := s.evictOne(ctx, m)
		if over -= freed; err != nil {
			s.log.WarnContext(ctx, "evict memory of snapshot", "snapshot", m.ID, "err", err)
		}
	}
	return over
}

// evictOne removes the memory of a snapshot from this disk, unless it is in use or the archive
// lacks a part of it.
func (s *archiver) evictOne(ctx context.Context, m snapshot) (freed int64, err error) {
	dir, bytes := s.snapshots.path(m.ID), int64(0)
	parts := machine.MemoryParts(dir)
	for _, part := range parts {
		bytes += archive.Allocated(filepath.Join(dir, part))
	}
	if bytes == 0 {
		return 0, nil
	}
	whole, err := s.archive.Complete(ctx, string(m.ID))
	if err != nil {
		return 0, err
	}
	if !whole {
		s.log.ErrorContext(ctx, "the archive has lost a part of a snapshot; storing it again", "snapshot", m.ID)
		return 0, s.snapshots.isNotStored(ctx, m.ID)
	}
	if err := s.cfg.failpoint("keep/evict"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[m.ID] > 0 {
		return 0, nil
	}
	for _, part := range parts { // the first says that the others are there
		if err := os.Remove(filepath.Join(dir, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("remove memory: %w", err)
		}
	}
	s.log.InfoContext(ctx, "memory of snapshot evicted", "snapshot", m.ID, "bytes", bytes)
	return bytes, nil
}
