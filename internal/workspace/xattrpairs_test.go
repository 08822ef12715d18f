package workspace

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"

	"holt"
)

// attributed makes files of nearly as many attributes as one may have: 15/16 MiB each.
func (f *fixture) attributed(dir string, n int) {
	f.Helper()
	for i := range n {
		ino := f.put(fmt.Sprint(dir, "/", i), "x").Ino
		for k := range 15 {
			f.ok(f.t.SetXattr(f.c, ino, fmt.Sprint("user.", k), bytes.Repeat([]byte{byte(i)}, xattrSizeMax), 0))
		}
	}
}

// liveHeap returns the most that collections found alive while fn ran, above
// what was there before, bytes. One that is missed makes it less, never more.
func liveHeap(fn func()) (most int64) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	live := func() int64 {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	before := live()
	var peak, done atomic.Int64
	var watch func()
	watch = func() {
		runtime.SetFinalizer(&struct{ _ [32]byte }{}, func(any) {
			if peak.Store(max(peak.Load(), live())); done.Load() == 0 {
				watch()
			}
		})
	}
	watch()
	fn()
	done.Store(1)
	return peak.Load() - before
}

// Files of many large attributes, which a guest may make at will, are compared
// some at a time, and no change holds all of them.
func TestXattrsAreNotHeldTogether(t *testing.T) {
	const files = 72 // more than mostChanged
	f := newFixture(t, Options{Disk: lazyDisk{}})
	for _, dir := range []string{"a", "b"} {
		f.mkdir(dir)
		f.attributed(dir, files/2)
	}
	f.checkpoint("then")
	g := f.fork(ForkOptions{Name: "f", Child: "g"})
	for i := range files {
		f.ok(f.t.SetXattr(f.c, f.must(fmt.Sprint("ab"[i%2:i%2+1], "/", i/2)).Ino, "user.3", []byte("new"), 0))
	}
	f.ok(f.w.Flush())
	var lines []string
	if most := liveHeap(func() { lines = f.changes("then", Live) }); most > 24<<20 {
		t.Errorf("a diff of %d files held %d MiB", len(lines), most>>20)
	}
	if len(lines) != files {
		t.Fatal(lines)
	}

	// What stands here of each file is held until the change is done.
	_, err := f.w.Restore(context.Background(), f.c, "then", RestoreOptions{})
	f.tooMany(err)
	f.wantLines(f.changes("then", Live), lines...)
	if r := f.restore("then", "/a"); len(r.Changes) != files/2 {
		t.Error(len(r.Changes))
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l[:len("metadata /a")] == "metadata /a" })
	f.wantLines(f.changes("then", Live), lines...)

	// Files that are new need room for all that they have.
	g.mkdir("c")
	g.mkdir("d")
	g.attributed("c", files/2)
	g.attributed("d", files/2)
	_, err = f.w.Merge(context.Background(), f.c, g.w, MergeOptions{})
	f.tooMany(err)
	f.merge(g, MergeOptions{Paths: []string{"/d"}})
	v, err := f.t.GetXattr(f.must(fmt.Sprint("d/", files/2-1)).Ino, "user.14")
	if f.ok(err); !bytes.Equal(v, bytes.Repeat([]byte{files/2 - 1}, xattrSizeMax)) {
		t.Error(len(v), v[0])
	}
}

func (f *fixture) tooMany(err error) {
	f.Helper()
	if holt.CodeOf(err) != holt.TooMany || holt.AsError(err).Hint == "" {
		f.Error("not refused: ", err)
	}
}
