package chunk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

func TestPartRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenDir(filepath.Join(dir, "store"))
	ok(t, err)
	a := openAt(t, dir, Options{Store: s})
	contents := [][]byte{text(1, 10), noise(2, 5_000_000), text(3, 10_000_000), noise(6, 7_000_000), {}, noise(4, 1), text(5, MaxChunk+1)}
	w, err := put(t, a, "wsp_a", "seg1", contents...)
	ok(t, err)
	t.Logf("%+v, packs %d", w, len(objects(t, s, packPrefix)))
	holds(t, a, "wsp_a", "seg1", contents...)
	for _, name := range objects(t, s, packPrefix) {
		if size, err := s.Stat(lazy, name); err != nil || size > maxPack {
			t.Fatal(name, size, err)
		}
	}
	p := make([]byte, 300_000)
	for _, off := range []int64{0, 1, 4_000_000 + 110, 12_000_000} {
		if err := a.ReadAt(lazy, "wsp_a", "seg1", p[:1], off); err != nil && off < 10 {
			t.Fatal(err)
		}
	}
	wantCode(t, a.ReadAt(lazy, "wsp_a", "seg1", p, 0), holt.NotFound)
	wantCode(t, a.ReadAt(lazy, "wsp_a", "seg1", p[:1], 10), holt.NotFound)
	wantCode(t, a.ReadAt(lazy, "wsp_a", "seg1", p[:1], 1<<40), holt.NotFound)
	wantCode(t, a.ReadAt(lazy, "wsp_a", "seg2", p[:1], 0), holt.NotFound)
	wantCode(t, a.ReadAt(lazy, "wsp_b", "seg1", p[:1], 0), holt.NotFound)
	clean(t, a)
}

// Twenty spaces with the same bytes need the room of one.
func TestDeduplication(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{})
	content := noise(1, 1_000_000)
	_, err := put(t, a, "one", "p", content)
	ok(t, err)
	before, err := a.Usage(lazy)
	ok(t, err)
	for i := range 20 {
		// Other bytes come first: the cuts follow the content.
		w, err := put(t, a, fmt.Sprint("other", i), "p", append(text(uint64(i), 1000), content...))
		ok(t, err)
		if w.Stored > 300_000 {
			t.Fatal("stored again:", w)
		}
		ok(t, a.Fork(lazy, "one", fmt.Sprint("fork", i)))
		holds(t, a, fmt.Sprint("fork", i), "p", content)
	}
	after, err := a.Usage(lazy)
	ok(t, err)
	if after.Stored > 6*before.Stored || after.Referred < 40*1_000_000 {
		t.Fatalf("%+v, then %+v", before, after)
	}
	clean(t, a)
}

func TestContentDefinedCuts(t *testing.T) {
	c := newCutter()
	cuts := func(b []byte) map[ID]int {
		m := map[ID]int{}
		for len(b) > 0 {
			n := c.cut(b)
			if n < minChunk && n != len(b) || n > MaxChunk || n <= 0 {
				t.Fatal("cut after", n)
			}
			m[Sum(b[:n])] = n
			b = b[n:]
		}
		return m
	}
	b := noise(9, 16<<20)
	all := cuts(b)
	if mean := len(b) / len(all); mean < meanChunk/2 || mean > meanChunk*2 {
		t.Fatal("mean of", mean)
	}
	shifted := cuts(append([]byte("a few bytes more"), b...))
	lost := 0
	for id := range all {
		if shifted[id] == 0 {
			lost++
		}
	}
	if lost > 3 {
		t.Fatalf("%d of %d chunks changed", lost, len(all))
	}
}

func TestCollectRemovesGarbage(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &Memory{}
	a := openAt(t, t.TempDir(), Options{Store: s, Now: func() time.Time { return now }, packBytes: 1 << 20})
	keep := noise(1, 200_000)
	var contents [][]byte
	for i := range 40 {
		contents = append(contents, noise(uint64(100+i), 100_000))
	}
	_, err := put(t, a, "w", "big", append(contents, keep)...)
	ok(t, err)
	_, err = put(t, a, "w", "small", keep)
	ok(t, err)
	ok(t, a.Fork(lazy, "w", "fork"))
	ok(t, a.Remove(lazy, "w", "big"))
	before := len(objects(t, s, packPrefix))
	collect := func(horizon time.Time) Collected {
		c, err := a.Collect(lazy, horizon)
		ok(t, err)
		clean(t, a)
		return c
	}
	if c := collect(now); c.Packs != 0 {
		t.Fatal("the fork needs it:", c)
	}
	holds(t, a, "fork", "big", append(contents, keep)...)
	ok(t, a.Drop(lazy, "fork"))
	now = now.Add(time.Hour)
	if c := collect(now.Add(-time.Minute)); c.Packs != 0 {
		t.Fatal("garbage only since now:", c)
	}
	w, err := put(t, a, "w", "again", contents[0])
	ok(t, err)
	if w.New != 0 {
		t.Fatal("garbage was not used again:", w)
	}
	now = now.Add(time.Hour)
	c := collect(now.Add(-time.Minute))
	if c.Packs < 2 || c.Repacked < 1 {
		t.Fatal(c)
	}
	holds(t, a, "w", "small", keep)
	holds(t, a, "w", "again", contents[0])
	if after := len(objects(t, s, packPrefix)); after > 2 || after >= before {
		t.Fatal(before, "packs, then", after)
	}
	if c := collect(now); c.Packs != 0 {
		t.Fatal("again:", c)
	}
	ok(t, a.Drop(lazy, "w"))
	collect(now)
	if left := objects(t, s, ""); left != nil {
		t.Fatal("left:", left)
	}
}

func TestNarrow(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{})
	content := noise(1, 2_000_000)
	_, err := put(t, a, "w", "p", content)
	ok(t, err)
	keep := []Range{{5, 10}, {100, 900_000}, {1_500_000, 1}}
	ok(t, a.Narrow(lazy, "w", "p", keep))
	for _, r := range keep {
		p := make([]byte, r.Len)
		ok(t, a.ReadAt(lazy, "w", "p", p, r.Off))
		if !bytes.Equal(p, content[r.Off:r.Off+r.Len]) {
			t.Fatal("other bytes at", r)
		}
		wantCode(t, a.ReadAt(lazy, "w", "p", p[:1], r.Off-1), holt.NotFound)
		wantCode(t, a.ReadAt(lazy, "w", "p", p[:1], r.Off+r.Len), holt.NotFound)
	}
	parts, err := a.Parts(lazy, "w")
	ok(t, err)
	if len(parts) != 1 || parts[0].Bytes != 900_011 {
		t.Fatal(parts)
	}
	clean(t, a)
}

// A writer that refers to garbage pins it until it commits.
func TestWriterPinsChunks(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{})
	content := noise(1, 500_000)
	_, err := put(t, a, "w", "p", content)
	ok(t, err)
	ok(t, a.Drop(lazy, "w"))
	w := a.Create("w", "q")
	ok(t, w.Append(lazy, 0, content))
	ok(t, w.EndRun(lazy))
	if w.stats.New != 0 {
		t.Fatal("not found:", w.stats)
	}
	c, err := a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	if c.Packs != 0 {
		t.Fatal(c)
	}
	_, err = w.Commit(lazy)
	ok(t, err)
	holds(t, a, "w", "q", content)
	clean(t, a)
}

func TestOverlapIsRefused(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{})
	w := a.Create("w", "p")
	ok(t, w.Append(lazy, 100, []byte("abc")))
	ok(t, w.Append(lazy, 102, []byte("abc")))
	_, err := w.Commit(lazy)
	wantCode(t, err, holt.InvalidArgument)
	wantCode(t, a.Create("w", "p").Append(lazy, -1, []byte("x")), holt.InvalidArgument)
	w = a.Create("../w", "p")
	_, err = w.Commit(lazy)
	wantCode(t, err, holt.InvalidArgument)
}

// With the index missing or damaged, all parts of all spaces are rebuilt from
// the store, and garbage is recognised.
func TestIndexIsRebuiltFromStore(t *testing.T) {
	dir := t.TempDir()
	s := &Memory{}
	a, err := Open(lazy, dir, Options{Store: s, packBytes: 1 << 20})
	ok(t, err)
	contents := [][]byte{noise(1, 1_500_000), text(2, 3_000_000), text(3, 50)}
	for i := range 3 {
		_, err := put(t, a, "w", partName(i), contents[i:]...)
		ok(t, err)
	}
	ok(t, a.Fork(lazy, "w", "f"))
	ok(t, a.Remove(lazy, "w", partName(0)))
	ok(t, a.Drop(lazy, "nothing"))
	want, err := a.Usage(lazy)
	ok(t, err)
	ok(t, a.Close())
	for _, damage := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.WriteFile(path, noise(1, 100_000), 0o600) },
	} {
		ok(t, damage(filepath.Join(dir, indexFile)))
		a, err = Open(lazy, dir, Options{Store: s})
		ok(t, err)
		clean(t, a)
		for i := range 3 {
			holds(t, a, "f", partName(i), contents[i:]...)
			if i > 0 {
				holds(t, a, "w", partName(i), contents[i:]...)
			}
		}
		got, err := a.Usage(lazy)
		ok(t, err)
		want.Spaces = 2
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		wantCode(t, a.ReadAt(lazy, "w", partName(0), make([]byte, 1), 0), holt.NotFound)
		ok(t, a.Close())
	}
}

// A lost pack loses only its own chunks, and the error names it.
func TestLostPack(t *testing.T) {
	dir := t.TempDir()
	s := &Memory{}
	a, err := Open(lazy, dir, Options{Store: s})
	ok(t, err)
	lost, kept := noise(1, 400_000), noise(2, 400_000)
	_, err = put(t, a, "w", "lost", lost)
	ok(t, err)
	name := objects(t, s, packPrefix)[0]
	_, err = put(t, a, "w", "kept", kept)
	ok(t, err)
	ok(t, s.Delete(lazy, name))
	report, err := a.Check(lazy, "", true)
	ok(t, err)
	if all := strings.Join(report.Problems, "\n"); !strings.Contains(all, name+" is missing from the store") {
		t.Fatalf("not noticed: %s", all)
	}
	a.hot = hot{most: 1}
	wantCode(t, a.ReadAt(lazy, "w", "lost", make([]byte, 10), 0), holt.Corrupt)
	ok(t, a.rebuild(lazy))
	wantCode(t, a.ReadAt(lazy, "w", "lost", make([]byte, 10), 0), holt.NotFound)
	holds(t, a, "w", "kept", kept)
	ok(t, a.Close())
}

func TestConcurrentUse(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{packBytes: 300_000})
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			space := fmt.Sprint("w", k)
			for i := range 12 {
				contents := [][]byte{noise(uint64(i), 150_000), text(uint64(k), 20_000)}
				if _, err := put(t, a, space, partName(i%3), contents...); err != nil {
					t.Error(err)
					return
				}
				p := make([]byte, 150_000)
				if err := a.ReadAt(lazy, space, partName(i%3), p, 0); err != nil || !bytes.Equal(p, contents[0]) {
					t.Error("read:", err)
				}
				if i%4 == 3 {
					if _, err := a.Collect(lazy, time.Now().Add(time.Hour)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	clean(t, a)
}

// A commit that fails before the index is updated leaves a version of the
// space. The next commit skips that version, and it does not come back.
func TestLeftoverVersionIsSkipped(t *testing.T) {
	dead := false
	a := openAt(t, t.TempDir(), Options{Fail: func(point string) error {
		if dead && point == "index.commit" {
			return errDead
		}
		return nil
	}})
	for i := range 3 {
		dead = true
		if _, err := put(t, a, "w", "p", noise(uint64(i), 1000)); err == nil {
			t.Fatal("the failpoint was not reached")
		}
		dead = false
		want := noise(uint64(100+i), 1000)
		_, err := put(t, a, "w", "p", want)
		ok(t, err)
		for range 2 {
			holds(t, a, "w", "p", want)
			_, err = a.Collect(lazy, time.Now().Add(time.Hour))
			ok(t, err)
		}
		clean(t, a)
		ok(t, a.rebuild(lazy))
		holds(t, a, "w", "p", want)
	}
}

// A commit that is cancelled after the store has it takes effect: it is visible and can be dropped.
func TestCancelAfterStoreHasVersion(t *testing.T) {
	ctx, giveUp := context.WithCancel(lazy)
	a := openAt(t, t.TempDir(), Options{Fail: func(point string) error {
		if point == "index.commit" {
			giveUp()
		}
		return nil
	}})
	w := a.Create("w", "p")
	want := noise(1, 1000)
	ok(t, w.Append(ctx, 0, want))
	_, err := w.Commit(ctx)
	ok(t, err)
	holds(t, a, "w", "p", want)
	ok(t, a.Drop(lazy, "w"))
	_, err = a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	if names, err := a.Spaces(lazy); err != nil || len(names) > 0 {
		t.Errorf("%v are there, %v", names, err)
	}
}

// A referring object is removed before its target.
func TestOrderOfRemoval(t *testing.T) {
	s := &Fault{Under: &Memory{}}
	a := openAt(t, t.TempDir(), Options{Store: s})
	_, err := put(t, a, "w", "p", noise(1, 1000))
	ok(t, err)
	var removed []string
	s.SetHook(func(call, name string) Failure {
		if call == "delete" {
			removed = append(removed, strings.Split(name, "/")[0])
		}
		return Failure{}
	})
	ok(t, a.Drop(lazy, "w"))
	_, err = a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	if got := strings.Join(removed, " "); got != "space manifest pack" {
		t.Fatal("removed:", got)
	}
}

// Chunks from AppendChunk are read back at their offsets, and Ranges returns them.
func TestAppendChunk(t *testing.T) {
	a := openAt(t, t.TempDir(), Options{})
	const size = 64 << 10
	b := noise(1, 4*size)
	cut := func(part string, pieces ...int) Written {
		w := a.Create("snap_a", part)
		defer w.Abort()
		for _, i := range pieces {
			ok(t, w.AppendChunk(lazy, int64(i*size), b[i*size:(i+1)*size]))
		}
		done, err := w.Commit(lazy)
		ok(t, err)
		return done
	}
	cut("one", 0, 1, 3)
	if w := cut("two", 1, 2, 3); w.New != 1 || w.Chunks != 3 {
		t.Errorf("%+v", w)
	}
	ranges, err := a.Ranges(lazy, "snap_a", "one")
	if err != nil || !slices.Equal(ranges, []Range{{0, 2 * size}, {3 * size, size}}) {
		t.Error(ranges, err)
	}
	if ranges, err := a.Ranges(lazy, "snap_a", "none"); holt.CodeOf(err) != holt.NotFound {
		t.Error(ranges, err)
	}
	cut("empty")
	if ranges, err := a.Ranges(lazy, "snap_a", "empty"); err != nil || ranges != nil {
		t.Error(ranges, err)
	}
	p := make([]byte, 2*size)
	ok(t, a.ReadAt(lazy, "snap_a", "two", p, 2*size))
	if !bytes.Equal(p, b[2*size:]) {
		t.Error("other bytes")
	}
	w := a.Create("snap_a", "bad")
	defer w.Abort()
	wantCode(t, w.AppendChunk(lazy, 0, nil), holt.InvalidArgument)
	wantCode(t, w.AppendChunk(lazy, 0, make([]byte, MaxChunk+1)), holt.InvalidArgument)
	ok(t, w.Append(lazy, 0, b[:100]))
	wantCode(t, w.AppendChunk(lazy, 100, b[:100]), holt.InvalidArgument) // the run has not ended
	clean(t, a)
}
