package workspace

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
)

// A cache of a few inodes must behave as one that holds all.
func TestTinyCache(t *testing.T) {
	f := newFixture(t, Options{CacheInodes: 8, CacheEntries: 8, CacheExtents: 8, FlushOps: 10})
	rng := rand.New(rand.NewPCG(4, 4))
	model := map[string]string{}
	var dirs []string
	for i := range 20 {
		dirs = append(dirs, fmt.Sprint("d", i))
		f.mkdir(dirs[i])
	}
	rounds := 3000
	if underRace {
		rounds = 1000
	}
	for i := range rounds {
		path := fmt.Sprintf("%s/f%d", dirs[rng.IntN(20)], rng.IntN(30))
		content, exists := model[path]
		switch rng.IntN(4) {
		case 0:
			model[path] = fmt.Sprint("content", i)
			f.put(path, model[path])
		case 1:
			err := f.unlink(path)
			if exists != (err == nil) {
				t.Fatal(path, err)
			}
			delete(model, path)
		case 2:
			to := fmt.Sprintf("%s/f%d", dirs[rng.IntN(20)], rng.IntN(30))
			err := f.rename(path, to, 0)
			if exists != (err == nil) {
				t.Fatal(path, err)
			}
			if exists {
				delete(model, path)
				model[to] = content
			}
		default:
			if _, err := f.stat(path); exists != (err == nil) {
				t.Fatal(path, err)
			}
			if exists && f.get(path) != content {
				t.Fatal("contents differ")
			}
		}
		if i%500 == 499 {
			f.ok(f.w.Flush())
			if s := f.w.Stat(); s.CachedInodes > 30 || s.CachedEntries > 30 || f.t.inodes.extents > 30 {
				t.Fatalf("the cache grows: %+v", s)
			}
		}
	}
	f.kill()
	n := 0
	for _, d := range dirs {
		n += len(f.list(d))
	}
	if n != len(model) || f.w.Stat().Files != int64(len(model)) {
		t.Fatal(n, len(model), f.w.Stat().Files)
	}
	for path, content := range model {
		if f.get(path) != content {
			t.Fatal(path)
		}
	}
}

// Lookups that a kernel holds are counted even when the inode is evicted.
func TestEvictedInodesKeepTheirCounts(t *testing.T) {
	f := newFixture(t, Options{CacheInodes: 4, CacheEntries: 4})
	e, _, err := f.w.BeginEpoch([16]byte{9}, GuestMount)
	f.ok(err)
	c := Caller{Epoch: e}
	var inos []Ino
	for i := range 50 {
		a, err := f.t.Create(c, Root, fmt.Sprint(i), 0o644)
		f.ok(err)
		inos = append(inos, a.Ino)
	}
	f.ok(f.w.Flush())
	for i, ino := range inos {
		f.ok(f.t.Unlink(c, Root, fmt.Sprint(i)))
		if _, err := f.t.GetAttr(ino); err != nil {
			t.Fatal("freed though a kernel holds it:", err)
		}
	}
	f.ok(f.w.Flush())
	for _, ino := range inos {
		f.t.Forget(c, ino, 1)
		if _, err := f.t.GetAttr(ino); err != syscall.ENOENT {
			t.Fatal("kept though nobody holds it:", err)
		}
	}
	if n := len(f.t.inodes.counts); n != 0 {
		t.Fatal(n, "counts left")
	}
}

func TestHugeDirectory(t *testing.T) {
	n := 100_000
	if underRace {
		n = 3_000
	}
	f := newFixture(t, Options{CacheInodes: 1000, CacheEntries: 1000})
	d := f.mkdir("big").Ino
	for i := range n {
		if _, err := f.t.Create(f.c, d, fmt.Sprintf("file-%06d", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.ok(f.w.Flush())
	for range 2 {
		if s := f.w.Stat(); s.CachedInodes > 2500 || s.CachedEntries > 2500 {
			t.Fatalf("%+v", s)
		}
		cookie, count := uint64(0), 0
		for {
			batch := 0
			err := f.t.ReadDir(f.c, d, cookie, true, func(e DirEntry) bool {
				if batch == 500 {
					return false
				}
				if e.Cookie > 2 && e.Name != fmt.Sprintf("file-%06d", count) {
					t.Fatal(e.Name, count)
				}
				if e.Cookie > 2 {
					count++
				}
				batch++
				cookie = e.Cookie
				return true
			})
			f.ok(err)
			if batch == 0 {
				break
			}
		}
		if count != n {
			t.Fatal(count)
		}
		f.want(f.rmdir("big"), syscall.ENOTEMPTY)
		f.reopen()
	}
	f.ok(f.rename("big", "moved", 0))
	for i := range n {
		if err := f.t.Unlink(f.c, d, fmt.Sprintf("file-%06d", i)); err != nil {
			t.Fatal(err)
		}
	}
	f.ok(f.rmdir("moved"))
}

func benchTree(b *testing.B, opt Options) *Tree {
	w, err := Create(b.TempDir()+"/ws", opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	})
	return w.Tree()
}

// cpu reports the processor time of the whole process, background included.
func cpu(b *testing.B, run func()) {
	var from, to syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &from)
	run()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &to)
	ns := (to.Utime.Nano() + to.Stime.Nano()) - (from.Utime.Nano() + from.Stime.Nano())
	b.ReportMetric(float64(ns)/float64(b.N), "cpu-ns/op")
}

func BenchmarkCreateWrite4K(b *testing.B) {
	t := benchTree(b, Options{})
	data := make([]byte, 4096)
	b.ReportAllocs()
	dir := Root
	i := 0
	cpu(b, func() {
		for b.Loop() {
			if i%1000 == 0 {
				a, err := t.Mkdir(Caller{}, Root, fmt.Sprint("d", i), 0o755)
				if err != nil {
					b.Fatal(err)
				}
				dir = a.Ino
			}
			i++
			a, err := t.Create(Caller{}, dir, fmt.Sprint("file", i), 0o644)
			if err == nil {
				_, err = t.Write(Caller{}, a.Ino, 0, data)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	t := benchTree(b, Options{})
	for i := range 1000 {
		if _, err := t.Create(Caller{}, Root, fmt.Sprint("file", i), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("file", i)
	}
	i := 0
	for b.Loop() {
		if _, err := t.Lookup(Caller{}, Root, names[i%1000]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkRead4K(b *testing.B) {
	t := benchTree(b, Options{})
	a, err := t.Create(Caller{}, Root, "f", 0o644)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 1<<20)
	for i := range 64 {
		if _, err := t.Write(Caller{}, a.Ino, int64(i)<<20, data); err != nil {
			b.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	p := data[:4096]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Read(a.Ino, rng.Int64N(64<<20/4096)*4096, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRandomWrite4K(b *testing.B) {
	t := benchTree(b, Options{})
	a, err := t.Create(Caller{}, Root, "f", 0o644)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 4096)
	b.ReportAllocs()
	cpu(b, func() {
		for b.Loop() {
			if _, err := t.Write(Caller{}, a.Ino, rng.Int64N(1<<30/4096)*4096, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSequentialWrite1M(b *testing.B) {
	t := benchTree(b, Options{})
	a, err := t.Create(Caller{}, Root, "f", 0o644)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	i := int64(0)
	for b.Loop() {
		if _, err := t.Write(Caller{}, a.Ino, i%1024<<20, data); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkCachedInode measures the memory of an inode with its entry.
func BenchmarkCachedInode(b *testing.B) {
	const n = 200_000
	for b.Loop() {
		t := benchTree(b, Options{})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		dir := Root
		for i := range n {
			if i%100 == 0 {
				a, err := t.Mkdir(Caller{}, Root, fmt.Sprint("d", i), 0o755)
				if err != nil {
					b.Fatal(err)
				}
				dir = a.Ino
			}
			if _, err := t.Create(Caller{}, dir, fmt.Sprint("file", i), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		if err := t.flush(); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		cached := len(t.inodes.ring)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(cached), "B/inode")
		b.ReportMetric(float64(cached), "cached")
	}
}

// A kernel asks each file that it writes for security.capability. That there
// is none must cost neither memory nor, after the first time, the index.
func TestNoAttributesCostNothing(t *testing.T) {
	f := newFixture(t, Options{})
	made := f.put("made", "x").Ino
	f.reopen()
	for _, ino := range []Ino{made, f.put("new", "x").Ino} {
		for range 2 {
			_, err := f.t.GetXattr(ino, "security.capability")
			f.want(err, syscall.ENODATA)
			if in := f.t.inodes.m[ino]; !in.plain || in.extra != nil {
				t.Errorf("inode %d: plain %v, extra %v", ino, in.plain, in.extra)
			}
		}
		f.ok(f.t.SetXattr(f.c, ino, "user.a", []byte("1"), 0))
		if v, err := f.t.GetXattr(ino, "user.a"); err != nil || string(v) != "1" {
			t.Error(ino, v, err)
		}
		f.ok(f.w.Flush())
		f.ok(f.t.RemoveXattr(f.c, ino, "user.a"))
		_, err := f.t.GetXattr(ino, "user.a")
		f.want(err, syscall.ENODATA)
	}
	f.reopen()
	_, err := f.t.GetXattr(made, "user.a")
	f.want(err, syscall.ENODATA)
}
