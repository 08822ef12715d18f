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
	HotBytes int                      // content kept in memory for reads, bytes; default 32 MiB
	Now      func() time.Time         // default time.Now
	Fail     func(point string) error // called at failpoints, for tests
	Log      *slog.Logger             // default: discard
	// Pace is called by long work after each MiB, with no lock held, and
	// returns when it may go on. Nil: at once.
	Pace func(ctx context.Context) error

	packBytes int // a smaller pack, for tests
}

// Archive keeps the parts of spaces as chunks in packs. One process has it
// open at a time: its caller sees to that. See the package comment.
type Archive struct {
	opt   Options
	log   *slog.Logger
	store Store
	index *index
	codec *codec
	hot   hot

	turn chan struct{} // holds a token while long work goes on

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	fetches singleflight.Group
	running sync.WaitGroup // fetches, and who keeps the index

	change   sync.Mutex // held by what changes spaces, in the store and then in the index; before mu
	clearing sync.Mutex // held by what removes objects; before mu

	mu     sync.Mutex
	torn   int                 // changes that failed between the store and the index
	pinned map[ID]int          // chunks that a writer counts on
	flying map[PackID]struct{} // packs that may be in the store and not yet in the index
	closed bool
}

const indexFile = "chunks.db"

// Open opens the archive whose index lies in dir and whose objects lie in
// opt.Store. An index that is missing or damaged is made again from the store.
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
		pinned: map[ID]int{}, flying: map[PackID]struct{}{}, turn: make(chan struct{}, 1)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if err := a.begin(context.WithValue(ctx, remaking{}, true)); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.running.Go(a.keep)
	return a, nil
}

// begin makes the index from the store, unless it is whole.
func (a *Archive) begin(ctx context.Context) error {
	whole := false
	err := a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT 1 FROM meta WHERE key = 'whole'", nil, func(*db.Row) error { whole = true; return nil })
	})
	if db.IsCorrupt(err) {
		a.log.Warn("chunk index is damaged and is made again from the packs", "error", err)
		return a.remakeOnce(ctx)
	}
	if err == nil && !whole {
		err = a.rebuild(ctx)
	}
	return err
}

// Close gives up running reads, waits for them, and closes the index.
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

// pin keeps a chunk from being swept until it is unpinned, and says whether
// the archive has it.
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

// putPack stores a pack. It counts as flying until land.
func (a *Archive) putPack(ctx context.Context, p *builder) error {
	a.mu.Lock()
	a.flying[p.id] = struct{}{}
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

// land says that packs are in the index, or nobody's concern any more.
func (a *Archive) land(packs []packed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range packs {
		delete(a.flying, p.id)
	}
}

// packed is a pack that was put in the store.
type packed struct {
	id      PackID
	size    int64
	entries []entry
}

// insert adds a pack and those of its chunks that are not elsewhere.
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
