package chunk

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
)

// diskUse is the sum of the sizes of all files in dir.
func diskUse(t testing.TB, dir string) (n int64) {
	t.Helper()
	ok(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			n += fi.Size()
		}
		return nil // gone meanwhile
	}))
	return n
}

func openCache(t testing.TB, dir string, opt CacheOptions) *Cache {
	t.Helper()
	c, err := OpenCache(dir, opt)
	ok(t, err)
	t.Cleanup(func() { ok(t, c.Close()) })
	return c
}

// The cache respects its limit while everything is read through it, before and after a restart.
func TestLocalDiskStaysBounded(t *testing.T) {
	dir, local := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	far, err := OpenDir(filepath.Join(dir, "far"))
	ok(t, err)
	const bound = 4 << 20
	cache := openCache(t, local, CacheOptions{Far: far, Bytes: bound, BlockSize: 256 << 10})
	a := openAt(t, dir, Options{Store: cache, HotBytes: 1})
	var contents [][]byte
	for i := range 16 {
		contents = append(contents, noise(uint64(i), 700_000))
	}
	for i, c := range contents {
		_, err := put(t, a, "w", partName(i), c)
		ok(t, err)
		if use := diskUse(t, local); use > bound {
			t.Fatal(use, "bytes after", i, "parts")
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 2 {
		for _, i := range rng.Perm(len(contents)) {
			holds(t, a, "w", partName(i), contents[i])
			if use := diskUse(t, local); use > bound || use != cache.Used() {
				t.Fatal(use, "bytes,", cache.Used(), "counted")
			}
		}
		if round == 0 {
			ok(t, cache.Close())
			used := cache.Used()
			cache = openCache(t, local, CacheOptions{Far: far, Bytes: bound, BlockSize: 256 << 10})
			a.store = cache
			if cache.Used() != used || used < bound/2 {
				t.Fatal("kept", used, "found", cache.Used())
			}
		}
	}
	if n := diskUse(t, filepath.Join(dir, "far")); n < 16*700_000 {
		t.Fatal("the far store has only", n)
	}
	small := openCache(t, local, CacheOptions{Far: far, Bytes: bound / 4, BlockSize: 256 << 10})
	if use := diskUse(t, local); use > bound/4 || small.Used() != use {
		t.Fatal("a smaller bound:", use)
	}
}

// The most recently used blocks stay, also across a restart.
func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	far := &Fault{Under: &Memory{}}
	dir := t.TempDir()
	gets := map[string]int{}
	var mu sync.Mutex
	far.SetHook(func(call, name string) Failure {
		mu.Lock()
		defer mu.Unlock()
		if call == "get" {
			gets[name]++
		}
		return Failure{}
	})
	c := openCache(t, dir, CacheOptions{Far: far, Bytes: 10 * 1100, BlockSize: 1000})
	for i := range 20 {
		ok(t, c.Put(lazy, partName(i), noise(uint64(i), 1000)))
		ok(t, c.Get(lazy, partName(0), make([]byte, 1000), 0))
		if i == 15 {
			ok(t, c.Close())
			c = openCache(t, dir, CacheOptions{Far: far, Bytes: 10 * 1100, BlockSize: 1000})
		}
	}
	if gets[partName(0)] != 0 {
		t.Fatal("the block in use was evicted")
	}
	ok(t, c.Get(lazy, partName(1), make([]byte, 1000), 0))
	if gets[partName(1)] != 1 {
		t.Fatal("a block was not evicted:", gets)
	}
}

// Concurrent readers of one chunk share a fetch, and the cancellation of one
// does not fail the others.
func TestConcurrentMissesShareFetch(t *testing.T) {
	far := &Fault{Under: &Memory{}}
	a := openAt(t, t.TempDir(), Options{Store: far})
	content := noise(1, 20_000)
	_, err := put(t, a, "w", "p", content)
	ok(t, err)
	cache := openCache(t, t.TempDir(), CacheOptions{Far: far})
	a.store = cache
	var gets atomic.Int32
	asked := make(chan struct{})
	far.SetHook(func(call, name string) Failure {
		if call == "get" && gets.Add(1) == 1 {
			<-asked
		}
		return Failure{}
	})
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(50)
	for i := range 50 {
		wg.Go(func() {
			p := make([]byte, 100)
			ready.Done()
			if err := a.ReadAt(lazy, "w", "p", p, int64(i)*100); err != nil || !bytes.Equal(p, content[i*100:i*100+100]) {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	close(asked)
	wg.Wait()
	if n := gets.Load(); n > 2 { // the block is shorter than a block: asked for twice
		t.Fatal(n, "requests")
	}
}

func TestFarStoreIsUnreachable(t *testing.T) {
	far := &Fault{Under: &Memory{}}
	cache := openCache(t, t.TempDir(), CacheOptions{Far: far})
	a := openAt(t, t.TempDir(), Options{Store: cache, HotBytes: 1})
	kept, lost := noise(1, 100_000), noise(2, 100_000)
	_, err := put(t, a, "w", "kept", kept)
	ok(t, err)
	_, err = put(t, a, "w", "lost", lost)
	ok(t, err)
	cache.Discard(objects(t, far, packPrefix)[0], 0, 1)
	cache.Discard(objects(t, far, packPrefix)[1], 0, 1)
	holds(t, a, "w", "kept", kept)
	p := make([]byte, 10)
	for _, down := range []struct {
		Failure
		code holt.Code
	}{
		{Failure{Err: fmt.Errorf("connection refused")}, holt.Unavailable},
		{Failure{Hang: true}, holt.Timeout},
	} {
		far.SetHook(func(string, string) Failure { return down.Failure })
		patient := cache.opt.Timeout
		if down.Hang { // only then: a busy machine may be as slow
			cache.opt.Timeout = 50 * time.Millisecond
		}
		holds(t, a, "w", "kept", kept) // from the local disk
		err := a.ReadAt(lazy, "w", "lost", p, 0)
		wantCode(t, err, down.code)
		if e := holt.AsError(err); !strings.Contains(e.Message, "the archive ") || e.Hint == "" {
			t.Fatalf("not clear: %q, %q", e.Message, e.Hint)
		}
		_, err = put(t, a, "w", "new", noise(3, 1000))
		wantCode(t, err, down.code)
		wantCode(t, a.ReadAt(lazy, "w", "new", p, 0), holt.NotFound)
		_, err = a.Collect(lazy, time.Now())
		if err == nil {
			t.Fatal("collected without the store")
		}
		cache.opt.Timeout = patient
		far.SetHook(nil)
		holds(t, a, "w", "lost", lost)
		cache.Discard(objects(t, far, packPrefix)[0], 0, 1)
		cache.Discard(objects(t, far, packPrefix)[1], 0, 1)
		holds(t, a, "w", "kept", kept)
	}
	_, err = put(t, a, "w", "new", noise(3, 1000))
	ok(t, err)
	clean(t, a)
}

// Damaged bytes, in the far store or on the local disk, cause an error and a
// log line and are never returned.
func TestWrongBytes(t *testing.T) {
	var log bytes.Buffer
	far := &Fault{Under: &Memory{}}
	dir := t.TempDir()
	cache := openCache(t, dir, CacheOptions{Far: far})
	a := openAt(t, t.TempDir(), Options{Store: cache, HotBytes: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	content := noise(1, 200_000)
	_, err := put(t, a, "w", "p", content)
	ok(t, err)
	pack := objects(t, far, packPrefix)[0]
	blocks := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*.*"))
		ok(t, err)
		return names
	}
	for _, name := range blocks() { // the local disk lies
		b, err := os.ReadFile(name)
		ok(t, err)
		b[len(b)/2] ^= 1
		ok(t, os.WriteFile(name, b, 0o600))
	}
	holds(t, a, "w", "p", content)
	for _, wrong := range []Failure{{Wrong: true}, {Short: true}} {
		cache.Discard(pack, 0, 200_000)
		far.SetHook(func(call, _ string) Failure {
			if call == "get" {
				return wrong
			}
			return Failure{}
		})
		log.Reset()
		wantCode(t, a.ReadAt(lazy, "w", "p", make([]byte, 200_000), 0), holt.Corrupt)
		if s := log.String(); !strings.Contains(s, "chunk cannot be read") || !strings.Contains(s, strings.Split(pack, "/")[2]) {
			t.Fatalf("log: %q", s)
		}
		// Damaged bytes are not cached after the fault is gone.
		far.SetHook(nil)
		holds(t, a, "w", "p", content)
	}
}

// A change of any bit of a pack is detected.
func TestEveryChangedBitIsDetected(t *testing.T) {
	s := &Memory{}
	a := openAt(t, t.TempDir(), Options{Store: s, HotBytes: 1})
	content := text(1, 300_000)
	_, err := put(t, a, "w", "p", content)
	ok(t, err)
	pack := objects(t, s, packPrefix)[0]
	whole := s.m[pack]
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		b := bytes.Clone(whole)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		s.mu.Lock()
		s.m[pack] = b
		s.mu.Unlock()
		p := make([]byte, len(content))
		if err := a.ReadAt(lazy, "w", "p", p, 0); err == nil && !bytes.Equal(p, content) {
			t.Fatal("wrong bytes")
		} else if err != nil && holt.CodeOf(err) != holt.Corrupt {
			t.Fatal(err)
		}
	}
}

// With a limit below 0 nothing is cached, and blocks of an earlier process are removed.
func TestCacheWithoutRoom(t *testing.T) {
	far, dir := &Memory{}, t.TempDir()
	c := openCache(t, dir, CacheOptions{Far: far})
	ok(t, c.Put(lazy, "a", noise(1, 3_000_000)))
	if c.Used() < 3_000_000 {
		t.Fatal("the default keeps", c.Used())
	}
	ok(t, c.Close())
	c = openCache(t, dir, CacheOptions{Far: far, Bytes: -1})
	a := openAt(t, t.TempDir(), Options{Store: c, HotBytes: 1})
	_, err := put(t, a, "w", "p", noise(2, 700_000))
	ok(t, err)
	holds(t, a, "w", "p", noise(2, 700_000))
	if use := diskUse(t, dir); use != 0 || c.Used() != 0 {
		t.Fatal(use, "bytes are kept,", c.Used(), "counted")
	}
}
