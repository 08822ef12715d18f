package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// ArchiveConfig says where the archive's packs lie. The zero value: below the
// data directory.
type ArchiveConfig struct {
	// Dir is a directory elsewhere, as on a larger and slower disk, that holds
	// the packs; the local disk then keeps a cache of them. It belongs to one
	// data directory.
	Dir string
	// CacheBytes bounds that cache. Default 10 GiB; below 0 nothing is kept.
	CacheBytes int64
}

const (
	collectEvery = time.Hour // garbage is looked for
	garbageKept  = time.Hour // at least, since the same content often comes again
)

// Archive is what all workspaces of a daemon share for their cold bytes, and its
// snapshots for what is kept of computers.
type Archive struct {
	*chunk.Archive
	place string
	cache *chunk.Cache // nil: the packs are near
	log   *slog.Logger

	spaces *Workspaces // set by start
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// openArchive opens the archive and claims its store.
func (d *Daemon) openArchive(ctx context.Context) error {
	dir := filepath.Join(d.cfg.DataDir, "archive")
	a := &Archive{log: d.log, cancel: func() {}}
	store, err := a.openStore(dir, d.cfg.Archive)
	if err == nil {
		err = claimStore(ctx, d.db, store, a.place)
	}
	if err == nil {
		a.Archive, err = chunk.Open(ctx, dir, chunk.Options{Store: store, Pace: new(pace).rest, Fail: d.cfg.Fail, Log: d.log})
	}
	if err != nil {
		if a.cache != nil {
			err = errors.Join(err, a.cache.Close())
		}
		return fmt.Errorf("open archive: %w", err)
	}
	d.archive = a
	return nil
}

// openStore opens what holds the packs. Another kind of far store, such as
// one that speaks S3, is opened here and gets the same cache.
func (a *Archive) openStore(dir string, cfg ArchiveConfig) (chunk.Store, error) {
	if a.place = cfg.Dir; a.place == "" {
		a.place = filepath.Join(dir, "store")
		return chunk.OpenDir(a.place)
	}
	if !filepath.IsAbs(a.place) {
		return nil, holt.Errorf(holt.InvalidArgument, "the directory %s is not absolute", a.place)
	}
	far, err := chunk.OpenDir(a.place)
	if err != nil {
		return nil, err
	}
	a.cache, err = chunk.OpenCache(filepath.Join(dir, "cache"), chunk.CacheOptions{Far: far, Bytes: cfg.CacheBytes, Log: a.log})
	return a.cache, err
}

// start looks for garbage, and for closed workspaces to pack, from time to time
// until close.
func (a *Archive) start(spaces *Workspaces) {
	ctx, cancel := context.WithCancel(context.Background())
	a.spaces, a.cancel = spaces, cancel
	a.done.Go(func() { spaces.packClosed(ctx) })
	a.done.Go(func() {
		tick := time.NewTicker(collectEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if _, err := a.collect(ctx, now.Add(-garbageKept)); err != nil && ctx.Err() == nil {
					a.log.Error("the archive's garbage is not collected; trying again later", "error", err)
				}
			}
		}
	})
}

// stop ends both; the archive can still be read.
func (a *Archive) stop() {
	a.cancel()
	a.done.Wait()
}

// close lets go of the archive; no workspace is open any more.
func (a *Archive) close() error {
	a.stop()
	err := a.Archive.Close()
	if a.cache != nil {
		err = errors.Join(err, a.cache.Close())
	}
	return err
}

// Get returns what the archive holds.
func (a *Archive) Get(ctx context.Context) (holt.Archive, error) {
	u, err := a.Usage(ctx)
	if err != nil {
		return holt.Archive{}, described(fmt.Errorf("look at the archive: %w", err))
	}
	out := holt.Archive{
		Place: a.place, Spaces: u.Spaces, Chunks: u.Chunks, Packs: u.Packs, Content: u.Referred, Unique: u.Content,
		Stored: u.Stored, Garbage: u.Stored - u.Live, Waiting: a.spaces.shelf.waiting(),
	}
	if u.Live > 0 {
		out.Ratio = float64(u.Referred) / float64(u.Live)
	}
	if a.cache != nil {
		out.Cached = a.cache.Used()
	}
	return out, nil
}

// Collect removes all garbage there is now, however young.
func (a *Archive) Collect(ctx context.Context, key string) (holt.Collected, error) {
	return idempotency.Once(ctx, a.spaces.keys, idempotency.Call[holt.Collected]{
		Key: key, Method: "archive.collect", Request: "",
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Collected, error) {
			c, err := a.collect(ctx, time.Now().Add(collectEvery))
			return c, described(err)
		},
	})
}

func (a *Archive) collect(ctx context.Context, horizon time.Time) (holt.Collected, error) {
	if err := a.dropLost(ctx); err != nil {
		return holt.Collected{}, err
	}
	c, err := a.Archive.Collect(ctx, horizon)
	if err == nil && c.Packs > 0 {
		a.log.InfoContext(ctx, "garbage collected", "packs", c.Packs, "repacked", c.Repacked, "freed", c.Freed)
	}
	return holt.Collected{Packs: c.Packs, Repacked: c.Repacked, Freed: c.Freed}, err
}

// dropLost drops the spaces whose workspaces, snapshots or disks were deleted when
// the archive could not be told, as on a full disk.
func (a *Archive) dropLost(ctx context.Context) error {
	names, err := a.Spaces(ctx) // first: what has a space has had a row before
	if err != nil {
		return err
	}
	has := map[string]bool{}
	err = a.spaces.table.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id FROM workspace UNION ALL SELECT id FROM snapshot UNION ALL SELECT space FROM disk
			UNION ALL SELECT space FROM disk_left WHERE EXISTS (SELECT 1 FROM snapshot WHERE outdated AND stored)`, nil,
			func(r *db.Row) error { has[r.Text(0)] = true; return nil })
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if !has[name] {
			if err := a.Drop(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check compares the index of the archive with its store, and reads and
// verifies every chunk that something needs.
func (a *Archive) Check(ctx context.Context) (holt.ArchiveReport, error) {
	r, err := a.Archive.Check(ctx, "", true)
	return holt.ArchiveReport{Chunks: r.Chunks, Bytes: r.Bytes, Problems: append([]string{}, r.Problems...)}, described(err)
}

// waiting adds up what open workspaces have to pack.
func (s *shelf) waiting() (n int64) {
	for _, ws := range s.open() {
		n += ws.Waiting
	}
	return n
}

// open returns the figures of all open workspaces.
func (s *shelf) open() (all []workspace.Stats) {
	s.mu.Lock()
	ids := make([]holt.WorkspaceID, 0, len(s.entries))
	for id := range s.entries {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		if stats, open := s.figures(id); open {
			all = append(all, stats)
		}
	}
	return all
}
