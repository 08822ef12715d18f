package chunk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"holt"
	"holt/internal/store/db"
)

// index is the chunk index. A damaged index is out of service until
// [Archive.remake] has rebuilt it.
type index struct {
	path    string
	damaged chan error // receives the error, once per outage

	mu      sync.RWMutex // held for reading while the database is used
	db      *db.DB
	lookups lookups

	state sync.Mutex // held briefly, after mu
	out   error      // why it is out of service; nil: it is in service
	back  chan struct{}
}

// openIndex opens the index at path. It removes an index that cannot be used.
func openIndex(path string, log *slog.Logger) (*index, error) {
	x := &index{path: path, damaged: make(chan error, 1)}
	err := x.open()
	if db.IsCorrupt(err) || errors.Is(err, db.ErrSchema) {
		log.Warn("chunk index cannot be used: rebuilding it from the packs", "error", err)
		err = x.renew()
	}
	return x, err
}

func (x *index) open() error {
	d, err := db.Open(x.path, schema, "")
	if err == nil {
		x.db, x.lookups = d, lookups{index: d, idle: make(chan *lookup, 4)}
	}
	return err
}

// renew replaces the index with an empty one, once no call uses it.
func (x *index) renew() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db != nil {
		_ = x.close() // the damage is known already
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(x.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return x.open()
}

func (x *index) close() error {
	d := x.db
	x.db = nil
	return errors.Join(x.lookups.close(), d.Close())
}

// Close closes the index. No call may use it any more.
func (x *index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db == nil {
		return nil
	}
	return x.close()
}

// Read, Write and WriteSync are those of [db.DB]. They return Unavailable while
// the index is out of service.
func (x *index) Read(ctx context.Context, fn func(*db.Tx) error) error {
	return x.use(ctx, func() error { return x.db.Read(ctx, fn) })
}

func (x *index) Write(ctx context.Context, fn func(*db.Tx) error) error {
	return x.use(ctx, func() error { return x.db.Write(ctx, fn) })
}

func (x *index) WriteSync(ctx context.Context, fn func(*db.Tx) error) error {
	return x.use(ctx, func() error { return x.db.WriteSync(ctx, fn) })
}

// query is [lookups.query].
func (x *index) query(ctx context.Context, sql string, bind, fn func(*db.Stmt)) error {
	return x.use(ctx, func() error { return x.lookups.query(ctx, sql, bind, fn) })
}

// remaking marks the contexts of calls that rebuild the index.
type remaking struct{}

// errOut is wrapped by errors of calls that need the index while it is rebuilt.
var errOut = errors.New("the chunk index is damaged and is being rebuilt from the packs")

func (x *index) use(ctx context.Context, fn func() error) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	inside := ctx.Value(remaking{}) != nil
	if _, out := x.service(); out != nil && !inside {
		return outError(out)
	}
	if x.db == nil {
		return holt.Errorf(holt.Unavailable, "the chunk index is closed")
	}
	err := fn()
	if inside || !db.IsCorrupt(err) {
		return err
	}
	x.found(err)
	return outError(err)
}

// found takes the index out of service because of err.
func (x *index) found(err error) {
	x.state.Lock()
	defer x.state.Unlock()
	if x.out == nil {
		x.out, x.back = err, make(chan struct{})
		x.damaged <- err
	}
}

func outError(why error) error {
	return holt.Errorf(holt.Unavailable, "%w: %w", errOut, why).WithHint("try again shortly; the daemon's log reports the progress")
}

// service returns a channel that is closed when the index is back in service,
// and why it is out of service.
func (x *index) service() (back <-chan struct{}, out error) {
	x.state.Lock()
	defer x.state.Unlock()
	return x.back, x.out
}

// restore puts the index back into service.
func (x *index) restore() {
	x.state.Lock()
	defer x.state.Unlock()
	x.out = nil
	close(x.back)
}

// patience is how long a read waits for an index that is being rebuilt.
const patience = 30 * time.Second

// await waits for the index if err says that it is out of service, and reports whether to retry.
func (x *index) await(ctx context.Context, err error) bool {
	if !errors.Is(err, errOut) {
		return false
	}
	back, out := x.service()
	if out == nil {
		return true
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-back:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	return false
}

// keep rebuilds the index each time it is found damaged, until Close.
func (a *Archive) keep() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case found := <-a.index.damaged:
			a.log.Error("chunk index is damaged: the archive is out of service until the index is rebuilt from the packs", "error", found)
			a.remake()
		}
	}
}

const (
	remakeAgain   = time.Second // after the first failed attempt; doubles with each
	remakeSlowest = time.Minute
)

// remake rebuilds a damaged index and retries until it succeeds.
func (a *Archive) remake() {
	ctx := context.WithValue(a.ctx, remaking{}, true)
	for wait := remakeAgain; ; wait = min(2*wait, remakeSlowest) {
		err := a.remakeOnce(ctx)
		if err == nil {
			a.index.restore()
			a.log.Info("chunk index is rebuilt")
			return
		}
		if a.ctx.Err() != nil {
			return
		}
		a.log.Error("cannot rebuild chunk index; trying again later", "again_in", wait, "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-a.ctx.Done():
			t.Stop()
			return
		}
	}
}

// remakeOnce starts with an empty index. No change is running by then: objects
// that the old index allowed to remove are not taken into the new index, and a
// version of a space that a change left in the store is.
func (a *Archive) remakeOnce(ctx context.Context) error {
	end, err := a.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := a.emptyIndex(); err != nil {
		return fmt.Errorf("create empty chunk index: %w", err)
	}
	return a.rebuild(ctx)
}

func (a *Archive) emptyIndex() error {
	a.change.Lock()
	defer a.change.Unlock()
	a.clearing.Lock()
	defer a.clearing.Unlock()
	return a.index.renew()
}
