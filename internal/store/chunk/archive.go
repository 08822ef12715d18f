package chunk

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"holt"
	"holt/internal/store/db"
)

// Options say how to open an archive.
type Options struct {
	Store    Store                    // where packs and manifests lie
	HotBytes int                      // memory for recently read content, bytes; default 32 MiB
	Now      func() time.Time         // default time.Now
	Fail     func(point string) error // called at failpoints, for tests
	Log      *slog.Logger             // default: discard
	// Pace is called by background work after each MiB, with no lock held. It
	// returns when the work may continue. Nil: no pause.
	Pace func(ctx context.Context) error

	packBytes int // a smaller pack, for tests
}

// Archive stores the parts of spaces as chunks in packs. Only one process may
// have it open; the caller ensures that. See the package comment.
type Archive struct {
	opt   Options
	log   *slog.Logger
	store Store
	index *index
	codec *codec
	hot   hot

	turn chan struct{} // semaphore: at most one packing or collection at a time

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	fetches singleflight.Group
	running sync.WaitGroup // fetches, and the goroutine that rebuilds the index

	change   sync.Mutex // held while a space is changed, in the store and then in the index; before mu
	clearing sync.Mutex // held while objects are removed; before mu

	mu       sync.Mutex
	torn     int                 // changes that failed between the store and the index
	pinned   map[ID]int          // chunks that an open writer refers to
	inFlight map[PackID]struct{} // packs that may be in the store but not yet in the index
	closed   bool
}

const indexFile = "chunks.db"

// Open opens the archive with its index in dir and its objects in opt.Store. A
// missing or damaged index is rebuilt from the store.
func Open(ctx context.Context, dir string, opt Options) (*Archive, error) {
	if opt.HotBytes <= 0 {
		opt.HotBytes = 32 << 20
	}
	if opt.packBytes <= 0 {
		opt.packBytes = packSize
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	c, err := newCodec()
	if err != nil {
		return nil, holt.Errorf(holt.Internal, "open archive: %w", err)
	}
	x, err := openIndex(filepath.Join(dir, indexFile), opt.Log)
	if err != nil {
		return nil, diskError("open archive", err)
	}
	a := &Archive{opt: opt, log: opt.Log, store: opt.Store, index: x, codec: c, hot: hot{most: opt.HotBytes},
		pinned: map[ID]int{}, inFlight: map[PackID]struct{}{}, turn: make(chan struct{}, 1)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if err := a.begin(context.WithValue(ctx, remaking{}, true)); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.running.Go(a.keep)
	return a, nil
}

// begin rebuilds the index from the store unless it is complete.
func (a *Archive) begin(ctx context.Context) error {
	whole := false
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM meta WHERE key = 'whole'", nil, func(*db.Row) error { whole = true; return nil })
	})
	if db.IsCorrupt(err) {
		a.log.Warn("chunk index is damaged: rebuilding it from the packs", "error", err)
		return a.remakeOnce(ctx)
	}
	if err == nil && !whole {
		err = a.rebuild(ctx)
	}
	return err
}

// Close cancels running reads, waits for them, and closes the index.
func (a *Archive) Close() error {
	a.mu.Lock()
	again := a.closed
	a.closed = true
	a.mu.Unlock()
	if again {
		return nil
	}
	a.cancel()
	a.running.Wait()
	a.turn <- struct{}{} // for good
	a.change.Lock()
	defer a.change.Unlock()
	a.codec.dec.Close()
	return errors.Join(a.index.Close(), a.codec.enc.Close())
}

func (a *Archive) fail(point string) error {
	if a.opt.Fail == nil {
		return nil
	}
	return a.opt.Fail(point)
}

// pin protects a chunk from being swept until it is unpinned, and reports
// whether the archive has it.
func (a *Archive) pin(ctx context.Context, id ID) (has bool, err error) {
	a.mu.Lock()
	a.pinned[id]++
	a.mu.Unlock()
	err = a.index.query(ctx, "SELECT 1 FROM chunk WHERE id = ?1", func(s *db.Stmt) { s.BindBytes(1, id[:]) }, func(*db.Stmt) { has = true })
	return has, err
}

func (a *Archive) unpin(ids []ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if a.pinned[id]--; a.pinned[id] == 0 {
			delete(a.pinned, id)
		}
	}
}

// putPack stores a pack and adds it to inFlight; land removes it from there.
func (a *Archive) putPack(ctx context.Context, p *builder) error {
	a.mu.Lock()
	a.inFlight[p.id] = struct{}{}
	a.mu.Unlock()
	b := p.finish()
	if err := a.fail("pack.put"); err != nil {
		return err
	}
	if err := a.store.Put(ctx, p.id.object(), b); err != nil {
		return err
	}
	return a.fail("pack.stored")
}

// land removes packs from inFlight: they are in the index, or have been given up.
func (a *Archive) land(packs []packed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range packs {
		delete(a.inFlight, p.id)
	}
}

// packed describes a pack that has been put in the store.
type packed struct {
	id      PackID
	size    int64
	entries []entry
}

// insert adds a pack, and those of its chunks that the index does not have.
func (p *packed) insert(tx *db.Tx) error {
	if err := tx.Exec("INSERT INTO pack(id, size) VALUES (?, ?)", p.id[:], p.size); err != nil {
		return err
	}
	add, err := tx.Prepare("INSERT OR IGNORE INTO chunk(id, pack, off, stored, length, sum)" +
		" SELECT ?1, n, ?3, ?4, ?5, ?6 FROM pack WHERE id = ?2")
	if err != nil {
		return err
	}
	for i := range p.entries {
		e := &p.entries[i]
		add.BindBytes(1, e.id[:])
		add.BindBytes(2, p.id[:])
		for k, v := range []int64{e.off, int64(e.stored), int64(e.length), int64(e.sum)} {
			add.BindInt64(3+k, v)
		}
		if _, err := add.Step(); err != nil {
			return err
		}
		if err := add.Reset(); err != nil {
			return err
		}
	}
	return nil
}
