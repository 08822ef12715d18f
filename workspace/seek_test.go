package workspace

import (
	"syscall"
	"testing"

	"holt/journal"
)

// A file in very many pieces, or with very large holes, costs no operation
// more than a bounded stretch of work under the lock, nor memory.
func TestHugeFiles(t *testing.T) {
	strides, cases := 3, []bool{false, true}
	if underRace {
		strides, cases = 2, cases[1:]
	}
	for _, evicted := range cases {
		f := newFixture(t, quiet(Options{CacheExtents: 100}))
		pieces := strides*mostStride + 500
		a := f.put("f", "")
		for i := range pieces {
			_, err := f.t.Write(f.c, a.Ino, int64(i)*1000, []byte("12345678"))
			f.ok(err)
		}
		far := int64(maxSize - 8)
		_, err := f.t.Write(f.c, a.Ino, far, []byte("12345678"))
		f.ok(err)
		forget := func() {
			if evicted {
				f.ok(f.w.Flush())
				f.t.tidy()
			}
		}
		forget()
		at, err := f.t.Lseek(a.Ino, int64(pieces)*1000, SeekData)
		if err != nil || at != far {
			t.Fatal(at, err)
		}
		if at, err = f.t.Lseek(a.Ino, 8001, SeekHole); err != nil || at != 8008 {
			t.Fatal(at, err)
		}
		if at, err = f.t.Lseek(a.Ino, far, SeekHole); err != nil || at != maxSize {
			t.Fatal(at, err)
		}
		for i := range int64(1000) { // holes everywhere
			_, err := f.t.Read(a.Ino, i<<40+123<<23, make([]byte, 10))
			f.ok(err)
			if evicted && f.t.extents > 5000 {
				t.Fatal(f.t.extents)
			}
		}
		forget()
		b := f.put("copy", "")
		n, err := f.t.CopyRange(f.c, a.Ino, 0, b.Ino, 0, 1<<30)
		if err != nil || n != mostStride*1000 {
			t.Fatal(n, err)
		}
		forget()
		end := f.t.journal.End()
		f.ok(f.t.Fallocate(f.c, a.Ino, 1000, 500, FallocPunchHole|FallocKeepSize))
		one := f.t.journal.End() - end
		_, err = f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: 4})
		f.ok(err)
		if f.t.journal.End()-end < journal.Pos(strides+1)*one {
			t.Error("a huge file was cut in one piece")
		}
		if got := f.get("f"); got != "1234" {
			t.Fatalf("%q", got)
		}
		if s := f.w.Stat(); s.Allocated != 4+8*mostStride {
			t.Fatal(s.Allocated)
		}
		if _, err = f.t.Lseek(a.Ino, 4, SeekData); err != syscall.ENXIO {
			t.Fatal(err)
		}
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
