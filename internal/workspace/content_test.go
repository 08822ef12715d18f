package workspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func TestSparse(t *testing.T) {
	f := newFixture(t, Options{})
	a := f.put("f", "")
	write := func(off int64, s string) {
		_, err := f.t.Write(f.c, a.Ino, off, []byte(s))
		f.ok(err)
	}
	const far = 3 * windowSize
	write(10, "abc")
	write(far, "def")
	if got := f.must("f"); got.Size != far+3 || got.Blocks != 1 {
		t.Fatalf("%+v", got)
	}
	seek := func(off int64, whence uint32, want int64) {
		t.Helper()
		got, err := f.t.Lseek(a.Ino, off, whence)
		if want < 0 {
			f.want(err, syscall.ENXIO)
		} else if err != nil || got != want {
			t.Fatalf("seek %d %d: %d %v, want %d", off, whence, got, err, want)
		}
	}
	for range 2 {
		seek(0, SeekData, 10)
		seek(11, SeekData, 11)
		seek(13, SeekData, far)
		seek(0, SeekHole, 0)
		seek(10, SeekHole, 13)
		seek(far, SeekHole, far+3)
		seek(far+3, SeekHole, -1)
		seek(far+3, SeekData, -1)
		p := make([]byte, 20)
		if n, err := f.t.Read(a.Ino, 5, p); n != 20 || err != nil || string(p) != "\x00\x00\x00\x00\x00abc"+strings.Repeat("\x00", 12) {
			t.Fatalf("%d %v %q", n, err, p)
		}
		f.reopen()
	}
	// A tail that was cut off is zero when the file grows again.
	for _, size := range []int64{12, 100} {
		_, err := f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: size})
		f.ok(err)
	}
	if got := f.get("f"); got != strings.Repeat("\x00", 10)+"ab"+strings.Repeat("\x00", 88) {
		t.Fatalf("%q", got)
	}
	f.ok(f.t.Fallocate(f.c, a.Ino, 50, 100, 0))
	f.ok(f.t.Fallocate(f.c, a.Ino, 50, 1000, FallocKeepSize))
	if f.must("f").Size != 150 {
		t.Fatal(f.must("f").Size)
	}
	write(0, strings.Repeat("x", 150))
	f.ok(f.t.Fallocate(f.c, a.Ino, 20, 30, FallocPunchHole|FallocKeepSize))
	f.ok(f.t.Fallocate(f.c, a.Ino, 140, 20, FallocZeroRange))
	want := strings.Repeat("x", 20) + strings.Repeat("\x00", 30) + strings.Repeat("x", 90) + strings.Repeat("\x00", 20)
	if got := f.get("f"); got != want {
		t.Fatalf("%q", got)
	}
	f.want(f.t.Fallocate(f.c, a.Ino, 0, 1, 8), syscall.EOPNOTSUPP)
	f.want(f.t.Fallocate(f.c, a.Ino, 0, 0, 0), syscall.EINVAL)
	_, err := f.t.Write(f.c, a.Ino, maxSize, []byte("x"))
	f.want(err, syscall.EFBIG)
	// Huge holes cost nothing.
	_, err = f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: 1 << 50})
	f.ok(err)
	write(1<<50-1, "!")
	f.ok(f.t.Fallocate(f.c, a.Ino, 10, 1<<49, FallocPunchHole|FallocKeepSize))
	f.reopen()
	seek(10, SeekData, 1<<50-1)
	if got := f.must("f"); got.Blocks != 1 {
		t.Fatal(got.Blocks)
	}
}

// Random writes, truncates, punches and copies against a byte slice, with a
// cache so small that everything is loaded again and again.
func TestRandomBytes(t *testing.T) {
	t.Parallel()
	const size = 2*windowSize + 100_000
	seeds := uint64(3)
	if underRace {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFixture(t, Options{CacheInodes: 1, CacheEntries: 1, CacheExtents: 40, FlushOps: 7, SegmentSize: 4 << 20})
			rng := rand.New(rand.NewPCG(seed, 1))
			a := f.put("f", "")
			other := f.put("g", "")
			model := []byte{}
			grow := func(n int) {
				if n > len(model) {
					model = append(model, make([]byte, n-len(model))...)
				}
			}
			place := func() (int, int) {
				n := 1 + rng.IntN([]int{10, 5000, 300_000}[rng.IntN(3)])
				off := rng.IntN(size - n)
				if rng.IntN(3) == 0 {
					off = max(0, windowSize-rng.IntN(20_000))
				}
				return off, n
			}
			for range 300 {
				off, n := place()
				switch rng.IntN(10) {
				case 0:
					_, err := f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: int64(off)})
					f.ok(err)
					if off <= len(model) {
						model = model[:off:off]
					}
					grow(off)
				case 1:
					f.ok(f.t.Fallocate(f.c, a.Ino, int64(off), int64(n), FallocPunchHole|FallocKeepSize))
					if off < len(model) {
						clear(model[off:min(len(model), off+n)])
					}
				case 2:
					to := rng.IntN(size)
					m, err := f.t.CopyRange(f.c, a.Ino, int64(off), a.Ino, int64(to), int64(n))
					if err == syscall.EINVAL {
						continue // overlapping
					}
					f.ok(err)
					if want := max(0, min(n, len(model)-off)); int64(want) != m {
						t.Fatalf("copied %d, want %d", m, want)
					}
					if m > 0 {
						grow(to + int(m))
						copy(model[to:], bytes.Clone(model[off:off+int(m)]))
					}
				case 3:
					f.put("g", "other")
					f.ok(f.w.Flush())
				default:
					if rng.IntN(3) == 0 {
						off = len(model)
						n = min(n, 50)
					}
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(rng.Uint32())
					}
					_, err := f.t.Write(f.c, a.Ino, int64(off), data)
					f.ok(err)
					grow(off + n)
					copy(model[off:], data)
				}
				_, err := f.t.GetAttr(other.Ino) // pushes the file out of the cache
				f.ok(err)
				off, n = place()
				p := make([]byte, n)
				m, err := f.t.Read(a.Ino, int64(off), p)
				f.ok(err)
				if want := model[min(off, len(model)):min(off+n, len(model))]; !bytes.Equal(want, p[:m]) {
					t.Fatalf("read %d+%d differs", off, n)
				}
			}
			for range 2 {
				if f.get("f") != string(model) {
					t.Fatal("contents differ")
				}
				f.kill()
			}
		})
	}
}

func TestAppendGathers(t *testing.T) {
	f := newFixture(t, Options{})
	a := f.put("log", "")
	var want strings.Builder
	for i := range 5000 {
		line := fmt.Sprintf("line %d\n", i)
		_, err := f.t.Write(f.c, a.Ino, int64(want.Len()), []byte(line))
		f.ok(err)
		want.WriteString(line)
	}
	for range 2 {
		if f.get("log") != want.String() {
			t.Fatal("contents differ")
		}
		f.kill()
	}
	if n := f.sql("SELECT count(*) FROM extent"); len(n[0]) > 2 {
		t.Fatal(n[0], "extents for 5000 lines")
	}
}

func TestCopyRangeShares(t *testing.T) {
	f := newFixture(t, Options{})
	data := strings.Repeat("0123456789abcdef", 10_000)
	a, b := f.put("a", data), f.put("b", "")
	before := f.w.Stat()
	n, err := f.t.CopyRange(f.c, a.Ino, 5, b.Ino, 100, 1<<40)
	if err != nil || n != int64(len(data)-5) {
		t.Fatal(n, err)
	}
	if grown := f.w.Stat().JournalBytes - before.JournalBytes; grown > 500 {
		t.Fatal("copied", grown, "bytes")
	}
	f.put("a", "overwritten")
	f.ok(f.unlink("a"))
	f.reopen()
	if got := f.get("b"); got != strings.Repeat("\x00", 100)+data[5:] {
		t.Fatal("contents differ")
	}
	n, err = f.t.CopyRange(f.c, b.Ino, 1<<40, b.Ino, 0, 10)
	if n != 0 || err != nil {
		t.Fatal(n, err)
	}
	_, err = f.t.CopyRange(f.c, b.Ino, 0, b.Ino, 5, 10)
	f.want(err, syscall.EINVAL)
	_, err = f.t.CopyRange(f.c, Root, 0, b.Ino, 5, 10)
	f.want(err, syscall.EISDIR)
}
