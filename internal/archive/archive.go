package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// Place says where the packs are. The zero value: in the archive's directory.
type Place struct {
	// Dir is another directory, as on a larger and slower disk. The local disk then has a
	// cache of the packs. It belongs to one data directory.
	Dir string
	// CacheBytes bounds that cache. Default 10 GiB; below 0 there is no cache.
	CacheBytes int64
}

const (
	collectInterval = time.Hour // how often garbage is collected
	garbageAge      = time.Hour // younger garbage stays, since the same content often comes again
)

// Config is what an [Archive] needs.
type Config struct {
	DB    *db.DB // with [Schema]
	Keys  *idempotency.Keys
	Dir   string
	Place Place
	Fail  func(point string) error // tests: called at each step of packing and collecting; may be nil
	Log   *slog.Logger
}

// Archive holds the cold bytes of all workspaces, and what is kept of snapshots of computers.
type Archive struct {
	*chunk.Archive
	db    *db.DB
	keys  *idempotency.Keys
	place string
	cache *chunk.Cache // nil: the packs are on the local disk
	log   *slog.Logger

	waiting func() int64 // set by Start
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Open opens the archive and claims its store.
func Open(ctx context.Context, cfg Config) (*Archive, error) {
	a := &Archive{db: cfg.DB, keys: cfg.Keys, log: cfg.Log, cancel: func() {}}
	store, err := a.openStore(cfg.Dir, cfg.Place)
	if err == nil {
		err = claimStore(ctx, cfg.DB, store, a.place)
	}
	if err == nil {
		a.Archive, err = chunk.Open(ctx, cfg.Dir, chunk.Options{Store: store, Pace: new(pace).rest, Fail: cfg.Fail, Log: cfg.Log})
	}
	if err != nil {
		if a.cache != nil {
			err = errors.Join(err, a.cache.Close())
		}
		return nil, fmt.Errorf("open archive: %w", err)
	}
	return a, nil
}

// Dir returns the directory of the packs.
func (a *Archive) Dir() string { return a.place }

// CacheRequests returns how many blocks were asked of the cache, by whether it had them; ok is false if there is none.
func (a *Archive) CacheRequests() (hits, misses int64, ok bool) {
	if a.cache == nil {
		return 0, 0, false
	}
	hits, misses = a.cache.Looked()
	return hits, misses, true
}

// openStore opens the store of the packs. A store that is not on the local disk has a cache there.
func (a *Archive) openStore(dir string, cfg Place) (chunk.Store, error) {
	if a.place = cfg.Dir; a.place == "" {
		a.place = filepath.Join(dir, "store")
		return chunk.OpenDir(a.place)
	}
	if !filepath.IsAbs(a.place) {
		return nil, holt.Errorf(holt.InvalidArgument, "the directory %s is not an absolute path", a.place)
	}
	far, err := chunk.OpenDir(a.place)
	if err != nil {
		return nil, err
	}
	a.cache, err = chunk.OpenCache(filepath.Join(dir, "cache"), chunk.CacheOptions{Far: far, Bytes: cfg.CacheBytes, Log: a.log})
	return a.cache, err
}

// Workspaces are the workspaces whose bytes the archive holds.
type Workspaces interface {
	PackClosed(ctx context.Context) // packs closed workspaces until ctx ends
	Waiting() int64                 // bytes of open workspaces that are to be packed
}

// Start collects garbage and packs closed workspaces in the background, until Stop.
func (a *Archive) Start(w Workspaces) {
	ctx, cancel := context.WithCancel(context.Background())
	a.waiting, a.cancel = w.Waiting, cancel
	a.done.Go(func() { w.PackClosed(ctx) })
	a.done.Go(func() {
		tick := time.NewTicker(collectInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if _, err := a.collect(ctx, now.Add(-garbageAge)); err != nil && ctx.Err() == nil {
					a.log.Error("the archive's garbage is not collected; it is tried again later", "again_in", collectInterval, "err", err)
				}
			}
		}
	})
}

// Stop ends the background work. The archive can still be used.
func (a *Archive) Stop() {
	a.cancel()
	a.done.Wait()
}

// Close closes the archive. No workspace is open any more.
func (a *Archive) Close() error {
	a.Stop()
	err := a.Archive.Close()
	if a.cache != nil {
		err = errors.Join(err, a.cache.Close())
	}
	return err
}

// Get returns the figures of the archive.
func (a *Archive) Get(ctx context.Context) (holt.Archive, error) {
	u, err := a.Usage(ctx)
	if err != nil {
		return holt.Archive{}, hosterror.Describe(fmt.Errorf("measure the archive: %w", err))
	}
	out := holt.Archive{
		Place: a.place, Spaces: u.Spaces, Chunks: u.Chunks, Packs: u.Packs, Content: u.Referred, Unique: u.Content,
		Stored: u.Stored, Garbage: u.Stored - u.Live, Waiting: a.waiting(),
	}
	if u.Live > 0 {
		out.Ratio = float64(u.Referred) / float64(u.Live)
	}
	if a.cache != nil {
		out.Cached = a.cache.Used()
	}
	return out, nil
}

// Collect removes all garbage, also young garbage.
func (a *Archive) Collect(ctx context.Context, key string) (holt.Collected, error) {
	return idempotency.Once(ctx, a.keys, idempotency.Call[holt.Collected]{
		Key: key, Method: "archive.collect", Request: "",
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Collected, error) {
			c, err := a.collect(ctx, time.Now().Add(collectInterval))
			return c, hosterror.Describe(err)
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

// dropLost drops the spaces of deleted workspaces, snapshots, disks and artifacts. A delete on a full disk leaves some.
func (a *Archive) dropLost(ctx context.Context) error {
	names, err := a.Spaces(ctx) // before the rows are read: a row is older than its space
	if err != nil {
		return err
	}
	has := map[string]bool{}
	err = a.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id FROM workspace UNION ALL SELECT id FROM snapshot UNION ALL SELECT id FROM artifact UNION ALL SELECT space FROM disk
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

// Check compares the index of the archive with its store, and reads and verifies
// every chunk in use.
func (a *Archive) Check(ctx context.Context) (holt.ArchiveReport, error) {
	r, err := a.Archive.Check(ctx, "", true)
	return holt.ArchiveReport{Chunks: r.Chunks, Bytes: r.Bytes, Problems: append([]string{}, r.Problems...)}, hosterror.Describe(err)
}
