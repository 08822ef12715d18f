package chunk

import (
	"container/list"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"holt"
)

// CacheOptions configure a cache. Far is required.
type CacheOptions struct {
	Far       Store         // the store that is cached
	Bytes     int64         // maximum size on the local disk; default 10 GiB, below 0: nothing is cached
	BlockSize int           // unit of fetching and eviction, bytes; default 1 MiB
	Timeout   time.Duration // of one request to Far; default 30 s
	Log       *slog.Logger  // default: discard
}

// Cache is a [Store] that caches blocks of the objects of a remote store in a
// local directory of bounded size, with LRU eviction. It holds nothing that Far
// does not hold, so the directory may be lost. Put writes to Far first and then
// to the cache.
//
// A block is a file <object in hex>.<number>: the bytes, then their CRC-32C
// salted with the name. It is renamed into place and not synced: after a power
// loss a block may be torn; the checksum detects that and the block is fetched again.
type Cache struct {
	opt CacheOptions
	log *slog.Logger
	dir string

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	fetches singleflight.Group // by block

	temp atomic.Uint64 // numbers temporary files

	hits, misses atomic.Int64

	mu    sync.Mutex
	used  int64
	m     map[blockKey]*list.Element
	order list.List // of *block, last used first

	closed bool
}

// ErrFarFull is wrapped by errors of a [Cache] whose remote store is full. Room
// on the local disk does not help.
var ErrFarFull = errors.New("the archive is full")

type blockKey struct {
	object string
	number int64
}

type block struct {
	blockKey
	size int64 // of the file
}

const blockTail = 4

// OpenCache opens the cache in dir, with the blocks that an earlier process
// left there. It creates dir if needed.
func OpenCache(dir string, opt CacheOptions) (*Cache, error) {
	if opt.Bytes == 0 {
		opt.Bytes = 10 << 30
	}
	if opt.BlockSize <= 0 {
		opt.BlockSize = 1 << 20
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 30 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{opt: opt, log: opt.Log, dir: dir, m: map[blockKey]*list.Element{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.scan(); err != nil {
		c.cancel()
		return nil, diskError("open cache", err)
	}
	return c, nil
}

// Close cancels running requests and waits for them.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	return nil
}

// scan adds the blocks of an earlier process, ordered by when they were written or last read.
func (c *Cache) scan() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	type aged struct {
		block
		used time.Time
	}
	var all []aged
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			continue
		}
		key, ok := parseBlock(e.Name())
		if !ok || fi.Size() > int64(c.opt.BlockSize)+blockTail {
			_ = os.Remove(filepath.Join(c.dir, e.Name())) // incomplete, or of another block size
			continue
		}
		all = append(all, aged{block{key, fi.Size()}, fi.ModTime()})
	}
	slices.SortFunc(all, func(a, b aged) int { return a.used.Compare(b.used) })
	for i := range all {
		if b := all[i].block; c.reserve(b.size) {
			c.keep(b)
		} else {
			_ = os.Remove(filepath.Join(c.dir, b.file()))
		}
	}
	return nil
}

func (k blockKey) file() string {
	return hex.EncodeToString([]byte(k.object)) + "." + strconv.FormatInt(k.number, 10)
}

func parseBlock(file string) (k blockKey, ok bool) {
	name, number, _ := strings.Cut(file, ".")
	object, err := hex.DecodeString(name)
	if err != nil {
		return k, false
	}
	k = blockKey{object: string(object)}
	k.number, err = strconv.ParseInt(number, 10, 64)
	return k, err == nil && k.file() == file
}

// keep adds a block, whose room is reserved, as the most recently used.
func (c *Cache) keep(b block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.m[b.blockKey]; ok {
		c.drop(e, false)
	}
	c.m[b.blockKey] = c.order.PushFront(&b)
}

// reserve evicts blocks until size more bytes fit, and counts them as used. It
// returns false if they cannot fit now. Room is reserved before writing so that
// the limit always holds.
func (c *Cache) reserve(size int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used+size > c.opt.Bytes && c.order.Len() > 0 {
		c.drop(c.order.Back(), true)
	}
	if c.used+size > c.opt.Bytes {
		return false
	}
	c.used += size
	return true
}

// drop removes a block from the index of the cache. mu is held.
func (c *Cache) drop(e *list.Element, remove bool) {
	b := c.order.Remove(e).(*block)
	delete(c.m, b.blockKey)
	c.used -= b.size
	if remove {
		_ = os.Remove(filepath.Join(c.dir, b.file()))
	}
}

// Discard drops a range of an object that turned out to be wrong.
func (c *Cache) Discard(name string, off int64, n int) {
	size := int64(c.opt.BlockSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := off / size; k*size < off+int64(n); k++ {
		if e, ok := c.m[blockKey{name, k}]; ok {
			c.drop(e, true)
		}
	}
}

// far calls the remote store. It cancels the call when it makes no progress
// within the timeout; fn calls alive to report progress.
func (c *Cache) far(ctx context.Context, doing, name string, fn func(ctx context.Context, alive func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(c.opt.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := fn(ctx, func() { timer.Reset(c.opt.Timeout) })
	switch code := holt.CodeOf(err); {
	case err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return holt.Errorf(holt.Timeout, "%s %s: the archive did not answer within %s: %w", doing, name, holt.ShortDuration(c.opt.Timeout), err).
			WithHint("check that the disk or server that holds the archive is reachable")
	case code == holt.OutOfSpace:
		return holt.Errorf(holt.OutOfSpace, "%s %s: %w: %w", doing, name, ErrFarFull, err).
			WithHint("free some space on the disk that holds the archive; packing then continues by itself")
	case code == holt.Internal || code == holt.Unavailable:
		return holt.Errorf(holt.Unavailable, "%s %s: the archive cannot be reached: %w", doing, name, err).
			WithHint("check that the disk or server that holds the archive is reachable")
	}
	return err
}

// Put implements [Store].
func (c *Cache) Put(ctx context.Context, name string, b []byte) error {
	if err := c.far(ctx, "put", name, func(ctx context.Context, _ func()) error { return c.opt.Far.Put(ctx, name, b) }); err != nil {
		return err
	}
	for number := int64(0); len(b) > 0; number++ {
		n := min(len(b), c.opt.BlockSize)
		c.store(blockKey{name, number}, b[:n])
		b = b[n:]
	}
	return nil
}

// Stat implements [Store].
func (c *Cache) Stat(ctx context.Context, name string) (size int64, err error) {
	err = c.far(ctx, "stat", name, func(ctx context.Context, _ func()) error { size, err = c.opt.Far.Stat(ctx, name); return err })
	return size, err
}

// List implements [Store].
func (c *Cache) List(ctx context.Context, prefix string, fn func(Object) error) error {
	var own error // an error of fn, not of the store
	err := c.far(ctx, "list", prefix, func(ctx context.Context, alive func()) error {
		return c.opt.Far.List(ctx, prefix, func(o Object) error {
			own = fn(o)
			alive()
			return own
		})
	})
	if own != nil {
		return own
	}
	return err
}

// Delete implements [Store].
func (c *Cache) Delete(ctx context.Context, name string) error {
	if err := c.far(ctx, "delete", name, func(ctx context.Context, _ func()) error { return c.opt.Far.Delete(ctx, name) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.m {
		if k.object == name {
			c.drop(e, true)
		}
	}
	return nil
}

// Get implements [Store].
func (c *Cache) Get(ctx context.Context, name string, p []byte, off int64) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	if off < 0 {
		return inRange(name, p, off, 0)
	}
	size := int64(c.opt.BlockSize)
	if len(p) == 0 {
		n, err := c.Stat(ctx, name)
		if err == nil {
			err = inRange(name, p, off, n)
		}
		return err
	}
	for at := off; len(p) > 0; {
		k := blockKey{name, at / size}
		b, err := c.block(ctx, k)
		if err != nil {
			return err
		}
		from := int(at - k.number*size)
		if from >= len(b) {
			return errShortObject(name, off, k.number*size+int64(len(b)))
		}
		n := copy(p, b[from:])
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// block returns the bytes of a block from the cache or from the remote store.
// Only the last block of an object is shorter. Concurrent misses of one block
// share a fetch.
func (c *Cache) block(ctx context.Context, k blockKey) ([]byte, error) {
	if b := c.kept(k); b != nil {
		c.hits.Add(1)
		return b, nil
	}
	c.misses.Add(1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, holt.Errorf(holt.Unavailable, "the cache is closed")
	}
	c.running.Add(1)
	c.mu.Unlock()
	done := c.fetches.DoChan(k.file(), func() (any, error) {
		b, err := c.fetch(k)
		if err == nil && len(b) > 0 {
			c.store(k, b)
		}
		return b, err
	})
	select {
	case r := <-done:
		c.running.Done()
		b, _ := r.Val.([]byte)
		return b, r.Err
	case <-ctx.Done():
		go func() { <-done; c.running.Done() }()
		return nil, holt.Errorf(holt.Timeout, "get %s: %w", k.object, ctx.Err())
	}
}

// fetch gets one block from the remote store.
func (c *Cache) fetch(k blockKey) (b []byte, err error) {
	size := int64(c.opt.BlockSize)
	err = c.far(c.ctx, "get", k.object, func(ctx context.Context, _ func()) error {
		n := size
		for try := 0; ; try++ {
			b = make([]byte, n)
			err := c.opt.Far.Get(ctx, k.object, b, k.number*size)
			if try > 0 || holt.CodeOf(err) != holt.Corrupt {
				return err
			}
			// The object most likely ends in this block.
			whole, err := c.opt.Far.Stat(ctx, k.object)
			if err != nil {
				return err
			}
			if n = min(size, whole-k.number*size); n <= 0 {
				b = nil
				return nil
			}
		}
	})
	return b, err
}

// kept returns a block from the local disk, or nil.
func (c *Cache) kept(k blockKey) []byte {
	c.mu.Lock()
	e, ok := c.m[k]
	if ok {
		c.order.MoveToFront(e)
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	path := filepath.Join(c.dir, k.file())
	b, err := os.ReadFile(path)
	if n := len(b) - blockTail; err == nil && n > 0 && k.sum(b[:n]) == binary.LittleEndian.Uint32(b[n:]) {
		now := time.Now() // for the order after a restart
		_ = os.Chtimes(path, now, now)
		return b[:n]
	}
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		err = nil // evicted meanwhile
	} else {
		c.log.Warn("cached block is damaged: fetching it again", "object", k.object, "block", k.number, "error", err)
	}
	c.Discard(k.object, k.number*int64(c.opt.BlockSize), 1)
	return nil
}

// sum is the checksum of a block's bytes.
func (k blockKey) sum(b []byte) uint32 { return checksum([]byte(k.file())) ^ checksum(b) }

// store writes a block to the cache. A failure is logged and not returned: the cache is optional.
func (c *Cache) store(k blockKey, b []byte) {
	size := int64(len(b)) + blockTail
	if !c.reserve(size) {
		return
	}
	temp := filepath.Join(c.dir, fmt.Sprintf("new-%d", c.temp.Add(1)))
	err := os.WriteFile(temp, binary.LittleEndian.AppendUint32(slices.Clip(b), k.sum(b)), 0o600)
	if err == nil {
		err = os.Rename(temp, filepath.Join(c.dir, k.file()))
	}
	if err != nil {
		_ = os.Remove(temp)
		c.mu.Lock()
		c.used -= size
		c.mu.Unlock()
		c.log.Warn("block cannot be cached", "object", k.object, "error", err)
		return
	}
	c.keep(block{k, size})
}

// Looked returns the numbers of cache hits and misses since the cache was opened.
func (c *Cache) Looked() (hits, misses int64) { return c.hits.Load(), c.misses.Load() }

// Used returns the size of the cache on the local disk, in bytes.
func (c *Cache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
