package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func open(t testing.TB, dir string, opt Options) *Journal {
	t.Helper()
	j, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// replay recovers from the first record and returns all metas.
func replay(t testing.TB, j *Journal, from Pos) (metas []string, refs []Record) {
	t.Helper()
	err := j.Recover(from, func(r Record) error {
		metas = append(metas, string(r.Meta))
		r.Meta = nil
		refs = append(refs, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return metas, refs
}

func add(t testing.TB, j *Journal, meta string, data []byte) Ref {
	t.Helper()
	r, err := j.Append([]byte(meta), Sum(nil, data), data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) + seed
	}
	return b
}

func TestAppendRecoverRead(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{SegmentSize: 1 << 20, OpenFiles: 2})
	replay(t, j, j.First())
	var want []string
	var refs []Ref
	sizes := []int{0, 1, 4096, BlockSize - 1, BlockSize, BlockSize + 1, 300_000, 1 << 20}
	for i := range 40 {
		want = append(want, fmt.Sprint("meta", i))
		refs = append(refs, add(t, j, want[i], pattern(sizes[i%len(sizes)], byte(i))))
	}
	check := func(j *Journal) {
		for i, r := range refs {
			whole := pattern(sizes[i%len(sizes)], byte(i))
			for _, c := range [][2]int{{0, len(whole)}, {1, len(whole)}, {len(whole) / 2, min(len(whole), len(whole)/2+4096)}} {
				if c[0] >= c[1] {
					continue
				}
				p := make([]byte, c[1]-c[0])
				if err := j.ReadData(Data{r.Segment, r.Data, len(whole)}, c[0], p); err != nil {
					t.Fatal(i, c, err)
				}
				if !bytes.Equal(p, whole[c[0]:c[1]]) {
					t.Fatal("wrong bytes", i, c)
				}
			}
		}
	}
	check(j)
	end := j.End()
	if err := j.Sync(end); err != nil || j.Synced() != end {
		t.Fatal(err, j.Synced(), end)
	}
	if len(j.Segments()) < 4 {
		t.Fatal("no rotation")
	}
	j.Close()
	j = open(t, dir, Options{SegmentSize: 1 << 20, OpenFiles: 2})
	if !j.Whole(refs[39].Pos, refs[39].End) || j.Whole(refs[38].Pos, refs[39].End) {
		t.Fatal("Whole is wrong")
	}
	got, _ := replay(t, j, refs[20].Pos)
	if d := cmp.Diff(want[20:], got); d != "" {
		t.Fatal(d)
	}
	if j.End() != end {
		t.Fatalf("end %v, want %v", j.End(), end)
	}
	check(j)
	add(t, j, "more", nil)
}

func TestTornTail(t *testing.T) {
	for _, damage := range []string{"cut", "zero", "flip", "junk"} {
		t.Run(damage, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, Options{})
			replay(t, j, j.First())
			add(t, j, "a", pattern(5000, 1))
			b := add(t, j, "b", pattern(50_000, 2))
			j.Close()
			names, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
			raw, _ := os.ReadFile(names[0])
			switch damage {
			case "cut":
				raw = raw[:len(raw)-1]
			case "zero":
				clear(raw[b.Data+40_000:])
			case "flip":
				raw[b.Pos.Offset()+5] ^= 0x40
			case "junk":
				raw = append(raw, "more that is no record"...)
			}
			if err := os.WriteFile(names[0], raw, 0o600); err != nil {
				t.Fatal(err)
			}
			want := []string{"a"}
			if damage == "junk" {
				want = append(want, "b")
			}
			for round := range 3 {
				j = open(t, dir, Options{})
				got, _ := replay(t, j, j.First())
				if d := cmp.Diff(want, got); d != "" {
					t.Fatal(d)
				}
				want = append(want, fmt.Sprint("c", round))
				add(t, j, want[len(want)-1], nil)
				j.Close()
			}
		})
	}
}

// File contents that contain a record, with a valid checksum for another place,
// are not read as a record after a torn append.
func TestForgedRecord(t *testing.T) {
	dir := t.TempDir()
	disk := NewFaultDisk()
	j := open(t, dir, Options{Disk: disk})
	replay(t, j, j.First())
	a := add(t, j, "a", nil)
	raw, _ := os.ReadFile(segmentPath(dir, j.Segments()[0].ID))
	forged := bytes.Repeat(raw[a.Pos.Offset():a.End.Offset()], 2000)
	disk.SetHook(func(op Op, name string, n int) (int, error) {
		if op == OpWrite {
			return n - 1, syscall.ENOSPC
		}
		return n, nil
	})
	if _, err := j.Append([]byte("x"), Sum(nil, forged), forged); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	disk.SetHook(nil)
	add(t, j, "b", nil)
	j.Close()
	j = open(t, dir, Options{})
	if got, _ := replay(t, j, j.First()); !cmp.Equal(got, []string{"a", "b"}) {
		t.Fatal(got)
	}
}

func TestFailedAppendChangesNothing(t *testing.T) {
	disk := NewFaultDisk()
	dir := t.TempDir()
	j := open(t, dir, Options{Disk: disk, SegmentSize: 64 << 10})
	replay(t, j, j.First())
	rng := rand.New(rand.NewPCG(1, 2))
	var want []string
	for i := range 500 {
		var fault error
		if rng.IntN(3) == 0 {
			fault = []error{syscall.ENOSPC, syscall.EIO}[rng.IntN(2)]
			disk.SetHook(func(op Op, name string, n int) (int, error) {
				if op == OpWrite || op == OpCreate {
					return rng.IntN(n + 1), fault
				}
				return n, nil
			})
		} else {
			disk.SetHook(nil)
		}
		data := pattern(rng.IntN(9000), byte(i))
		_, err := j.Append([]byte(fmt.Sprint(i)), Sum(nil, data), data)
		if (err != nil) != (fault != nil) || fault != nil && !errors.Is(err, fault) {
			t.Fatal(err, fault)
		}
		if err == nil {
			want = append(want, fmt.Sprint(i))
		}
	}
	disk.SetHook(nil)
	j.Close()
	j = open(t, dir, Options{})
	if got, _ := replay(t, j, j.First()); !cmp.Equal(got, want) {
		t.Fatal(cmp.Diff(want, got))
	}
}

func TestFailedSyncIsRepeated(t *testing.T) {
	disk := NewFaultDisk()
	dir := t.TempDir()
	j := open(t, dir, Options{Disk: disk})
	replay(t, j, j.First())
	add(t, j, "a", pattern(10_000, 1))
	if err := j.Sync(j.End()); err != nil {
		t.Fatal(err)
	}
	add(t, j, "b", pattern(100_000, 1))
	disk.SetHook(func(op Op, _ string, n int) (int, error) {
		if op == OpSync {
			return 0, syscall.EIO
		}
		return n, nil
	})
	if err := j.Sync(j.End()); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	wrote := 0
	disk.SetHook(func(op Op, _ string, n int) (int, error) {
		if op == OpWrite {
			wrote += n
		}
		return n, nil
	})
	if err := j.Sync(j.End()); err != nil {
		t.Fatal(err)
	}
	if wrote < 100_000 {
		t.Fatalf("wrote only %d bytes again", wrote)
	}
}

func TestLostBytesAfterFailedSyncBreakTheJournal(t *testing.T) {
	disk := NewFaultDisk()
	dir := t.TempDir()
	j := open(t, dir, Options{Disk: disk})
	replay(t, j, j.First())
	r := add(t, j, "a", pattern(10_000, 1))
	disk.SetHook(func(op Op, name string, n int) (int, error) {
		if op == OpSync {
			f, _ := os.OpenFile(name, os.O_RDWR, 0)
			f.WriteAt(make([]byte, 100), r.Data+50) // the page is dropped
			f.Close()
			return 0, syscall.EIO
		}
		return n, nil
	})
	_ = j.Sync(j.End())
	disk.SetHook(nil)
	if err := j.Sync(j.End()); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if _, err := j.Append([]byte("b"), nil, nil); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

// A program that syncs each write does not change the file's size each time.
func TestSmallSyncsKeepFileSize(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	replay(t, j, j.First())
	var want []string
	sizes := map[int64]bool{}
	const count, each = 200, 4100
	for i := range count {
		want = append(want, fmt.Sprint(i))
		add(t, j, want[i], pattern(each, byte(i)))
		if err := j.Sync(j.End()); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(dir, j.Segments()[0].ID.String()+".seg"))
		if err != nil {
			t.Fatal(err)
		}
		sizes[st.Size()] = true
	}
	if most := count*each/(blankSize-blankLow) + 2; len(sizes) > most {
		t.Errorf("the file grew %d times in %d small syncs, want at most %d", len(sizes), count, most)
	}
	j.Close()
	j = open(t, dir, Options{})
	if got, _ := replay(t, j, j.First()); !cmp.Equal(got, want) {
		t.Fatal(cmp.Diff(want, got))
	}
	add(t, j, "more", nil)
	if n := len(j.Segments()); n != 1 {
		t.Errorf("%d segments: zeros behind the end were taken for a torn record", n)
	}
}

func TestPowerLossKeepsSyncedPrefix(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		disk := NewFaultDisk()
		dir := t.TempDir()
		j := open(t, dir, Options{Disk: disk, SegmentSize: 40 << (10 + seed%2*5)})
		replay(t, j, j.First())
		var want []string
		synced := 0
		for i := range 60 {
			want = append(want, fmt.Sprint(i))
			add(t, j, want[i], pattern(rng.IntN(9000), byte(i)))
			if rng.IntN(10) == 0 {
				if err := j.Sync(j.End()); err != nil {
					t.Fatal(err)
				}
				synced = i + 1
			}
		}
		image := filepath.Join(t.TempDir(), "image")
		if err := disk.Image(dir, image, rng); err != nil {
			t.Fatal(err)
		}
		j.Close()
		j = open(t, image, Options{SegmentSize: 40 << 10})
		got, _ := replay(t, j, j.First())
		if len(got) < synced || !cmp.Equal(got, want[:len(got)]) {
			t.Fatalf("seed %d: %d synced, got %d records: %v", seed, synced, len(got), got)
		}
		add(t, j, "after", nil)
		j.Close()
		j = open(t, image, Options{})
		again, _ := replay(t, j, j.First())
		if !cmp.Equal(again, append(got, "after")) {
			t.Fatalf("seed %d: second recovery differs", seed)
		}
		j.Close()
	}
}

func TestLostMiddleSegmentEndsThePrefix(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{SegmentSize: 10 << 10})
	replay(t, j, j.First())
	for i := range 30 {
		add(t, j, fmt.Sprint(i), pattern(3000, 0))
	}
	segs := j.Segments()
	j.Close()
	if err := os.Remove(segmentPath(dir, segs[3].ID)); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, Options{SegmentSize: 10 << 10})
	got, _ := replay(t, j, j.First())
	if len(got) != 9 {
		t.Fatal(got)
	}
	lost, _ := filepath.Glob(filepath.Join(dir, "*.lost"))
	if len(lost) != len(segs)-4 {
		t.Fatal(lost)
	}
	if err := j.Recover(makePos(99, headerSize), nil); !errors.Is(err, ErrPast) {
		t.Fatal(err)
	}
}

func TestChecksumMismatchIsAnError(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	replay(t, j, j.First())
	data := pattern(200_000, 3)
	r := add(t, j, "a", data)
	f, _ := os.OpenFile(segmentPath(dir, j.Segments()[0].ID), os.O_RDWR, 0)
	f.WriteAt([]byte{^data[100_000]}, r.Data+100_000)
	f.Close()
	d := Data{r.Segment, r.Data, len(data)}
	p := make([]byte, 4096)
	if err := j.ReadData(d, 100_000-50, p); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), "segment") {
		t.Fatal(err)
	}
	if err := j.ReadData(d, 0, p); err != nil {
		t.Fatal("a good block beside it:", err)
	}
	if err := j.ReadData(Data{77, 200, 10}, 0, p[:1]); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{SegmentSize: 10 << 10})
	replay(t, j, j.First())
	var last Ref
	for i := range 12 {
		last = add(t, j, fmt.Sprint(i), pattern(3000, 0))
	}
	if err := j.Remove(1); !errors.Is(err, syscall.EBUSY) {
		t.Fatal("an unsynced segment:", err)
	}
	if err := j.Sync(j.End()); err != nil {
		t.Fatal(err)
	}
	if err := j.Remove(2); err != nil {
		t.Fatal(err)
	}
	if err := j.Remove(last.Segment); !errors.Is(err, syscall.EBUSY) {
		t.Fatal("the active segment:", err)
	}
	j.Close()
	j = open(t, dir, Options{})
	got, _ := replay(t, j, makePos(3, headerSize))
	if !cmp.Equal(got, []string{"6", "7", "8", "9", "10", "11"}) {
		t.Fatal(got)
	}
}

func TestConcurrentSyncAndRead(t *testing.T) {
	j := open(t, t.TempDir(), Options{SegmentSize: 100 << 10, OpenFiles: 2})
	replay(t, j, j.First())
	var wg sync.WaitGroup
	refs := make(chan Ref, 16)
	for range 4 {
		wg.Go(func() {
			p := make([]byte, 3000)
			for r := range refs {
				if err := j.Sync(r.End); err != nil || j.Synced() < r.End {
					t.Error(err)
				}
				if err := j.ReadData(Data{r.Segment, r.Data, 3000}, 0, p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 300 {
		refs <- add(t, j, "x", pattern(3000, byte(i)))
	}
	close(refs)
	wg.Wait()
}

func FuzzDecodeRecord(f *testing.F) {
	id := ID{1, 2, 3}
	data := pattern(40_000, 1)
	b := append(append(make([]byte, headSize), "meta"...), Sum(nil, data)...)
	seal(b, 4, len(data), id, 128)
	f.Add(append(b, data...))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		meta, data, n, err := decodeRecord(b, id, 128)
		if err == nil && (n > len(b) || len(meta) == 0 || len(meta)+len(data) > n) {
			t.Fatal(len(meta), len(data), n, len(b))
		}
	})
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add(header{id: ID{1}, ordinal: 3, prevEnd: 500}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHeader(b); err == nil && (h.ordinal == 0 || h.prevEnd < 0) {
			t.Fatal(h)
		}
	})
}

func BenchmarkAppend4K(b *testing.B) {
	j := open(b, b.TempDir(), Options{})
	replay(b, j, j.First())
	data := pattern(4096, 1)
	meta := make([]byte, 60)
	var table []byte
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		table = Sum(table[:0], data)
		if _, err := j.Append(meta, table, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead4KOf1M(b *testing.B) {
	j := open(b, b.TempDir(), Options{})
	replay(b, j, j.First())
	data := pattern(1<<20, 1)
	r := add(b, j, "m", data)
	p := make([]byte, 4096)
	rng := rand.New(rand.NewPCG(1, 1))
	b.SetBytes(4096)
	for b.Loop() {
		if err := j.ReadData(Data{r.Segment, r.Data, len(data)}, rng.IntN(250)*4096, p); err != nil {
			b.Fatal(err)
		}
	}
}
