package workspace

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"holt/internal/store/journal"
)

// A file in very many pieces, or with very large holes, costs no operation
// more than a bounded stretch of work under the lock, nor memory.
func TestHugeFiles(t *testing.T) {
	t.Parallel()
	strides, cases := 3, []bool{false, true}
	if underRace {
		strides, cases = 2, cases[1:]
	}
	for _, evicted := range cases {
		f := newFixture(t, quiet(Options{CacheExtents: 100}))
		pieces := strides*mostRangeExtents + 500
		const apart = 1100 // no block is crowded
		a := f.put("f", "")
		for i := range pieces {
			_, err := f.t.Write(f.c, a.Ino, int64(i)*apart, []byte("12345678"))
			f.ok(err)
		}
		far := int64(maxSize - 8)
		_, err := f.t.Write(f.c, a.Ino, far, []byte("12345678"))
		f.ok(err)
		forget := func() {
			if evicted {
				f.ok(f.w.Flush())
				f.t.inodes.tidy()
			}
		}
		forget()
		at, err := f.t.Lseek(a.Ino, int64(pieces)*apart, SeekData)
		if err != nil || at != far {
			t.Fatal(at, err)
		}
		if at, err = f.t.Lseek(a.Ino, 8*apart+1, SeekHole); err != nil || at != 8*apart+8 {
			t.Fatal(at, err)
		}
		if at, err = f.t.Lseek(a.Ino, far, SeekHole); err != nil || at != maxSize {
			t.Fatal(at, err)
		}
		for i := range int64(1000) { // holes everywhere
			_, err := f.t.Read(a.Ino, i<<40+123<<23, make([]byte, 10))
			f.ok(err)
			if evicted && f.t.inodes.extents > 5000 {
				t.Fatal(f.t.inodes.extents)
			}
		}
		forget()
		b := f.put("copy", "")
		n, err := f.t.CopyRange(f.c, a.Ino, 0, b.Ino, 0, 1<<30)
		if err != nil || n != compactAt*apart {
			t.Fatal(n, err)
		}
		forget()
		end := f.t.journal.End()
		f.ok(f.t.Fallocate(f.c, a.Ino, apart, 500, FallocPunchHole|FallocKeepSize))
		one := f.t.journal.End() - end
		_, err = f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: 4})
		f.ok(err)
		if f.t.journal.End()-end < journal.Pos(strides+1)*one {
			t.Error("a huge file was cut in one piece")
		}
		if got := f.get("f"); got != "1234" {
			t.Fatalf("%q", got)
		}
		if s := f.w.Stat(); s.Allocated != 4+8*compactAt {
			t.Fatal(s.Allocated)
		}
		if _, err = f.t.Lseek(a.Ino, 4, SeekData); err != syscall.ENXIO {
			t.Fatal(err)
		}
	}
}

// Whatever a program does with single bytes, a window of a file keeps few
// extents: what a change costs under the lock is bounded with them.
func TestCrowdedBlocks(t *testing.T) {
	t.Parallel()
	const most = 2*compactAt + 8 // of a block
	f := newFixture(t, quiet(Options{}))
	content := make([]byte, 2*chunk)
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := f.put("a", string(content)), f.put("b", "")
	f.ok(f.t.Fallocate(f.c, b.Ino, 0, 2*chunk, 0))
	other := make([]byte, 2*chunk)
	count := func(ino Ino) (n int) {
		f.t.inodes.m[ino].file.each(0, chunk, func(extent) bool { n++; return true })
		return n
	}
	seen := 0
	for i := range 12 * compactAt {
		off := int64(rng.IntN(chunk / 8)) // of a small place, where many meet
		switch i % 3 {
		case 0:
			content[off] = byte(i)
			_, err := f.t.Write(f.c, a.Ino, off, content[off:off+1])
			f.ok(err)
		case 1:
			content[off] = 0
			f.ok(f.t.Fallocate(f.c, a.Ino, off, 1, FallocPunchHole|FallocKeepSize))
		default:
			n, err := f.t.CopyRange(f.c, a.Ino, off, b.Ino, off+3, int64(1+rng.IntN(chunk/16)))
			f.ok(err)
			copy(other[off+3:off+3+n], content[off:])
		}
		seen = max(seen, count(a.Ino), count(b.Ino))
	}
	if seen < compactAt/2 || seen > most {
		t.Errorf("a block held %d extents, want at most %d", seen, most)
	}
	if f.get("a") != string(content) || f.get("b") != string(other) {
		t.Error("contents differ")
	}
	f.kill()
	if f.get("a") != string(content) || f.get("b") != string(other) {
		t.Error("contents differ after recovery")
	}
}

// A mount that never acknowledges keeps few answers and few segments, and one
// that never forgets does not count around.
func TestHostileMount(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 1 << 12}))
	e, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	a := f.put("f", "")
	for i := range uint64(200) {
		_, err := f.t.Write(Caller{Epoch: e, Unique: i + 1}, a.Ino, 0, make([]byte, 1000))
		f.ok(err)
	}
	f.ok(f.w.Flush())
	f.ok(f.t.collect())
	if s := f.w.Stat(); s.Segments > mostSpan+3 || len(f.t.epochs[e].queue) > 8*mostSpan {
		t.Fatalf("%+v", s)
	}
	f.kill()
	if len(f.t.epochs[e].queue) > 8*mostSpan {
		t.Fatal(len(f.t.epochs[e].queue))
	}
	c := Caller{Epoch: e}
	_, err = f.t.Lookup(c, Root, "f")
	f.ok(err)
	f.t.inodes.setLookups(a.Ino, mostLookups)
	_, err = f.t.Lookup(c, Root, "f")
	f.ok(err)
	f.ok(f.t.Unlink(c, Root, "f"))
	f.t.Forget(c, a.Ino, 1<<63)
	_, err = f.t.GetAttr(a.Ino)
	f.ok(err)
	f.ok(f.w.EndEpoch(e))
	_, err = f.t.GetAttr(a.Ino)
	f.want(err, syscall.ENOENT)
}
