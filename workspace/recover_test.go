package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/journal"
)

// quiet leaves flushing to the test.
func quiet(opt Options) Options {
	opt.FlushInterval, opt.FlushOps = time.Hour, 1<<30
	return opt
}

// steps are operations of every kind, on a small tree; each makes one record
// at most that changes what can be seen.
func steps(f *fixture) []func() {
	c := f.c
	c.Writer = Writer{Kind: "run", Name: "agent", Run: "run_1"}
	ino := func(path string) Ino { return f.must(path).Ino }
	xattr := func(path, name, value string) func() {
		return func() { f.ok(f.t.SetXattr(c, ino(path), name, []byte(value), 0)) }
	}
	return []func(){
		func() { f.mkdir("d") },
		func() { f.put("d/one", "") },
		func() { _, err := f.t.Write(c, ino("d/one"), 0, []byte("1")); f.ok(err) },
		func() { f.put("two", "") },
		func() { _, err := f.t.Write(f.c, ino("two"), 0, bytes.Repeat([]byte("two"), 30_000)); f.ok(err) },
		func() { f.ok(f.t.Sync()) },
		func() { f.ok(f.w.Flush()) },
		func() { _, err := f.t.Write(c, ino("two"), 5, []byte("more")); f.ok(err) },
		func() { f.ok(f.rename("d/one", "three", 0)) },
		xattr("three", "user.tag", "urgent"),
		func() { _, err := f.t.Symlink(c, Root, "link", "d/one"); f.ok(err) },
		func() { _, err := f.t.Link(c, ino("two"), ino("d"), "hard"); f.ok(err) },
		func() { f.ok(f.w.Flush()) },
		func() { _, err := f.t.SetAttr(c, ino("two"), SetAttrs{Mask: SetSize, Size: 40_000}); f.ok(err) },
		func() { f.mkdir("e") },
		func() { f.ok(f.rename("d", "e", RenameExchange)) },
		func() { f.ok(f.unlink("two")) },
		func() { _, err := f.t.CopyRange(c, ino("e/hard"), 0, ino("three"), 9, 1<<20); f.ok(err) },
		func() { f.ok(f.t.Sync()) },
		func() {
			f.ok(f.t.Fallocate(c, ino("three"), 100, 5000, FallocPunchHole|FallocKeepSize))
		},
		func() { f.ok(f.rmdir("d")) },
		func() { f.ok(f.t.RemoveXattr(c, ino("three"), "user.tag")) },
		func() { f.ok(f.w.Flush()) },
		func() { f.ok(f.unlink("e/hard")) },
		func() { _, err := f.t.Mknod(c, Root, "fifo", syscall.S_IFIFO|0o600, 0); f.ok(err) },
		func() { f.ok(f.w.Flush()) },
	}
}

// image copies the workspace as a crash now would leave it. With disk, bytes
// that were not synced may be lost: of the journal by page, of the WAL from
// some frame on.
func image(t *testing.T, dir, dst string, disk *journal.FaultDisk, rng *rand.Rand) {
	t.Helper()
	if err := os.MkdirAll(dst, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"index.db", "index.db-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if disk != nil && name == "index.db-wal" {
			b = b[:rng.IntN(len(b)+1)]
		}
		if err := os.WriteFile(filepath.Join(dst, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if disk == nil {
		disk, rng = journal.NewFaultDisk(), rand.New(rand.NewPCG(0, 0))
	}
	if err := disk.Image(filepath.Join(dir, "journal"), filepath.Join(dst, "journal"), rng); err != nil {
		t.Fatal(err)
	}
}

// crashTest runs the steps, takes an image at every failpoint, and opens each:
// it must be the tree after some step no earlier than promised, no later than
// had begun.
func crashTest(t *testing.T, seed uint64, power bool) {
	disk := journal.NewFaultDisk()
	rng := rand.New(rand.NewPCG(seed, 3))
	type crash struct {
		dir, point string
		least      int
		most       int
	}
	var f *fixture
	var crashes []crash
	var states []string // after step i
	synced := 0
	armed := false
	reached := map[string]int{}
	opt := quiet(Options{Disk: disk, SegmentSize: 60_000})
	opt.Fail = func(point string) error {
		if !armed {
			return nil
		}
		reached[point]++
		if underRace && reached[point]%5 != 1 {
			return nil
		}
		c := crash{filepath.Join(t.TempDir(), "image"), point, len(states) - 1, len(states)}
		if power {
			c.least = synced
			image(t, f.dir, c.dir, disk, rng)
		} else {
			image(t, f.dir, c.dir, nil, nil)
		}
		crashes = append(crashes, c)
		return nil
	}
	f = newFixture(t, opt)
	states = append(states, f.dump())
	armed = true
	for _, step := range steps(f) {
		step()
		armed = false
		states = append(states, f.dump())
		armed = true
		if f.t.journal.Synced() == f.t.journal.End() {
			synced = len(states) - 1
		}
	}
	armed = false
	points := map[string]int{}
	for _, c := range crashes {
		points[c.point]++
		g := &fixture{T: t, dir: c.dir, opt: quiet(Options{}), c: f.c}
		g.open()
		got := g.dump()
		if !slices.Contains(states[c.least:min(c.most, len(states)-1)+1], got) {
			t.Fatalf("seed %d: image at %s is none of the states %d to %d:\n%s", seed, c.point, c.least, c.most,
				cmp.Diff(states[c.least], got))
		}
		g.put("after", "recovery")
		g.check()
		g.reopen()
		if g.get("after") != "recovery" {
			t.Fatal("the recovered workspace does not keep what is written")
		}
		g.ok(g.w.Close())
	}
	for _, p := range []string{"commit.append", "commit.apply", "journal.append", "journal.create", "journal.sync", "flush.sync", "flush.commit", "flush.committed"} {
		if points[p] == 0 {
			t.Errorf("failpoint %s was never reached: %v", p, points)
		}
	}
}

func TestKillAtEveryFailpoint(t *testing.T) { crashTest(t, 0, false) }

func TestPowerLossAtEveryFailpoint(t *testing.T) {
	seeds := uint64(3)
	if underRace {
		seeds = 1
	}
	for seed := range seeds {
		crashTest(t, seed, true)
	}
}

func TestTornTail(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	f.mkdir("d")
	f.put("d/f", "content")
	before := f.dump()
	end := f.t.journal.End().Offset()
	_, err := f.t.Write(f.c, f.must("d/f").Ino, 0, []byte("CONTENT"))
	f.ok(err)
	after := f.t.journal.End().Offset()
	f.abandon()
	segs, _ := filepath.Glob(filepath.Join(f.dir, "journal", "*.seg"))
	raw, _ := os.ReadFile(segs[0])
	for cut := end; cut < after; cut += 3 {
		f.ok(os.WriteFile(segs[0], raw[:cut], 0o600))
		f.ok(os.RemoveAll(filepath.Join(f.dir, "index.db")))
		f.ok(os.RemoveAll(filepath.Join(f.dir, "index.db-wal")))
		f.ok(os.RemoveAll(filepath.Join(f.dir, "index.db-shm")))
		f.open()
		if d := cmp.Diff(before, f.dump()); d != "" {
			t.Fatal(cut, d)
		}
		f.abandon()
	}
	f.open()
}

func TestIndexAheadOfJournalIsRebuilt(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	f.mkdir("d")
	f.put("d/f", "content")
	before := f.dump()
	end := f.t.journal.End().Offset()
	f.put("late", "lost")
	f.ok(f.w.Flush())
	f.abandon()
	segs, _ := filepath.Glob(filepath.Join(f.dir, "journal", "*.seg"))
	f.ok(os.Truncate(segs[0], end+3))
	f.open()
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal(d)
	}
	if got := f.sql("SELECT count(*) FROM inode"); got[0] != "3" {
		t.Fatal(got)
	}
	f.put("again", "x")
	f.kill()
	f.must("again")
}

func TestDamagedIndexIsRebuilt(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	f.mkdir("d")
	f.put("d/f", "content")
	f.ok(f.w.Flush())
	want := f.dump()
	f.abandon()
	_ = os.Remove(filepath.Join(f.dir, "index.db-wal"))
	f.ok(os.WriteFile(filepath.Join(f.dir, "index.db"), bytes.Repeat([]byte("junk"), 5000), 0o600))
	f.open()
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
}

// What is removed before the index heard of the rest must leave no row.
func TestRemovedDirectoriesLeaveNoRows(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	f.mkdir("d")
	f.mkdir("d/e")
	f.put("d/e/f", "x")
	f.ok(f.w.Flush())
	f.ok(f.unlink("d/e/f"))
	f.ok(f.rmdir("d/e"))
	f.put("d/g", "x")
	f.ok(f.unlink("d/g"))
	f.ok(f.rmdir("d"))
	for _, table := range []string{"entry", "extent", "xattr"} {
		if got := f.sql("SELECT count(*) FROM " + table); got[0] != "0" {
			t.Fatal(table, got)
		}
	}
	if s := f.w.Stat(); s.CachedEntries != 0 || s.DirtyRows != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestFailedAppendChangesNothing(t *testing.T) {
	disk := journal.NewFaultDisk()
	f := newFixture(t, quiet(Options{Disk: disk}))
	a := f.put("f", "content")
	f.mkdir("d")
	before := f.dump()
	for _, fault := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, part := range []int{0, 1, 20, 1 << 20} {
			disk.SetHook(func(op journal.Op, _ string, n int) (int, error) {
				if op == journal.OpWrite {
					return part, fault
				}
				return n, nil
			})
			_, err := f.t.Write(f.c, a.Ino, 0, []byte("other"))
			f.want(err, fault)
			_, err = f.t.Create(f.c, Root, "new", 0o644)
			f.want(err, fault)
			f.want(f.unlink("f"), fault)
			f.want(f.rename("f", "g", 0), fault)
			c := f.c
			c.Writer = Writer{Kind: "run", Name: "agent", Run: "r"}
			f.want(f.t.SetXattr(c, a.Ino, "user.x", nil, 0), fault)
			if d := cmp.Diff(before, f.dump()); d != "" {
				t.Fatal(d)
			}
			disk.SetHook(nil)
			f.put("f", "content")
			before = f.dump()
		}
	}
	f.kill()
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal(d)
	}
}

func TestFailedSyncIsReported(t *testing.T) {
	disk := journal.NewFaultDisk()
	f := newFixture(t, quiet(Options{Disk: disk}))
	a := f.put("f", "content")
	disk.SetHook(func(op journal.Op, _ string, n int) (int, error) {
		if op == journal.OpSync {
			return 0, syscall.ENOSPC
		}
		return n, nil
	})
	f.want(f.t.Fsync(a.Ino), syscall.ENOSPC)
	if err := f.w.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal("the index must not outlive the journal:", err)
	}
	f.put("g", "still usable")
	disk.SetHook(nil)
	f.ok(f.t.Fsync(a.Ino))
	f.ok(f.w.Flush())
	f.kill()
	if f.get("g") != "still usable" {
		t.Fatal("lost")
	}
}

// A flush that fails keeps everything dirty; the next writes both batches.
func TestFailedFlushIsRepeated(t *testing.T) {
	failing := false
	opt := quiet(Options{})
	opt.Fail = func(point string) error {
		if failing && point == "flush.commit" {
			return syscall.ENOSPC
		}
		return nil
	}
	f := newFixture(t, opt)
	for _, step := range steps(f) {
		failing = true
		if err := f.w.Flush(); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		failing = false
		step()
		failing = true
		_ = f.w.Flush()
		failing = false
	}
	want := f.dump()
	f.reopen()
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
}

func TestFullIndexHoldsWritersBack(t *testing.T) {
	var mu sync.Mutex
	failing := false
	opt := Options{MaxDirty: 20, FlushOps: 5}
	opt.Fail = func(point string) error {
		mu.Lock()
		defer mu.Unlock()
		if failing && point == "flush.commit" {
			return syscall.ENOSPC
		}
		return nil
	}
	f := newFixture(t, opt)
	mu.Lock()
	failing = true
	mu.Unlock()
	var err error
	for i := 0; err == nil; i++ {
		if i > 1000 {
			t.Fatal("dirty rows without bound")
		}
		_, err = f.t.Create(f.c, Root, fmt.Sprint(i), 0o644)
	}
	f.want(err, syscall.ENOSPC)
	mu.Lock()
	failing = false
	mu.Unlock()
	f.ok(f.w.Flush())
	f.put("works", "again")
}

func TestRepeatedRequests(t *testing.T) {
	for _, flush := range []bool{false, true} {
		f := newFixture(t, quiet(Options{}))
		e, resumed, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
		if err != nil || resumed || e == 0 {
			t.Fatal(e, resumed, err)
		}
		f.ok(f.w.SetEpochInit(e, []byte("init"), []byte("reply")))
		var unique uint64 = 100
		next := func() Caller { unique++; return Caller{Epoch: e, Unique: unique, UID: 1} }
		var repeat []func() string // each gives its answer again
		do := func(call func(Caller) (any, error)) {
			c := next()
			run := func() string {
				v, err := call(c)
				if a, ok := v.(Attr); ok {
					v = a.Ino
				}
				return fmt.Sprint(v, err)
			}
			first := run()
			if !strings.HasSuffix(first, "<nil>") {
				t.Fatal(first)
			}
			repeat = append(repeat, func() string {
				if got := run(); got != first {
					return fmt.Sprintf("%d: got %s, first %s", c.Unique, got, first)
				}
				return ""
			})
		}
		var file Ino
		do(func(c Caller) (any, error) { return f.t.Mkdir(c, Root, "d", 0o755) })
		do(func(c Caller) (any, error) { a, err := f.t.Create(c, Root, "f", 0o644); file = a.Ino; return a, err })
		do(func(c Caller) (any, error) { return f.t.Write(c, file, 0, []byte("hello")) })
		do(func(c Caller) (any, error) { return f.t.Symlink(c, Root, "l", "f") })
		do(func(c Caller) (any, error) { return nil, f.t.Rename(c, Root, "l", Root, "m", 0) })
		do(func(c Caller) (any, error) { return f.t.Link(c, file, Root, "hard") })
		do(func(c Caller) (any, error) { return nil, f.t.Unlink(c, Root, "hard") })
		do(func(c Caller) (any, error) { return nil, f.t.Rmdir(c, Root, "d") })
		do(func(c Caller) (any, error) { return nil, f.t.SetXattr(c, file, "user.a", []byte("b"), XattrCreate) })
		do(func(c Caller) (any, error) { return nil, f.t.RemoveXattr(c, file, "user.a") })
		do(func(c Caller) (any, error) { return f.t.CopyRange(c, file, 0, file, 100, 5) })
		do(func(c Caller) (any, error) { return f.t.SetAttr(c, file, SetAttrs{Mask: SetSize, Size: 50}) })
		do(func(c Caller) (any, error) { return nil, f.t.Fallocate(c, file, 0, 2, FallocPunchHole|FallocKeepSize) })
		do(func(c Caller) (any, error) { return nil, f.t.Unlink(c, Root, "m") })
		failed := next()
		f.want(f.t.Rmdir(failed, Root, "later"), syscall.ENOENT)
		want := f.dump()
		again := func() {
			t.Helper()
			for _, r := range repeat {
				if s := r(); s != "" {
					t.Fatal(s)
				}
			}
			if d := cmp.Diff(want, f.dump()); d != "" {
				t.Fatal(d)
			}
		}
		again()
		for range 3 {
			if flush {
				f.ok(f.w.Flush())
			}
			f.kill()
			e2, resumed, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
			if err != nil || !resumed || e2 != e {
				t.Fatal(e2, resumed, err)
			}
			if req, rep, ok := f.w.EpochInit(e); !ok || string(req)+string(rep) != "initreply" {
				t.Fatal(req, rep)
			}
			again()
		}
		// What had failed is executed anew.
		f.mkdir("later")
		f.ok(f.t.Rmdir(failed, Root, "later"))
		// What is acknowledged is forgotten.
		f.w.Acknowledge(e, 103)
		_, err = f.t.Mkdir(Caller{Epoch: e, Unique: 101}, Root, "f", 0o755)
		f.want(err, syscall.EEXIST)
		if s := repeat[2](); s != "" {
			t.Fatal(s)
		}
		f.w.Acknowledge(e, unique+1)
		if n := len(f.t.epochs[e].replies) + len(f.t.epochs[e].queue); n != 0 {
			t.Fatal(n)
		}
		f.ok(f.w.EndEpoch(e))
		_, err = f.t.Mkdir(next(), Root, "x", 0o755)
		f.want(err, syscall.ESTALE)
	}
}

func TestUnlinkedButOpen(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	e, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	c := Caller{Epoch: e}
	create := func(name string) Ino {
		a, err := f.t.Create(c, Root, name, 0o644)
		f.ok(err)
		_, err = f.t.Write(c, a.Ino, 0, []byte(name))
		f.ok(err)
		return a.Ino
	}
	gone := func(ino Ino, want bool) {
		t.Helper()
		if _, err := f.t.GetAttr(ino); (err == syscall.ENOENT) != want {
			t.Fatalf("inode %d: %v", ino, err)
		}
	}
	a, b, d := create("a"), create("b"), create("d")
	_, err = f.t.Lookup(c, Root, "a") // a second reference
	f.ok(err)
	f.ok(f.t.Unlink(c, Root, "a"))
	f.ok(f.t.Unlink(c, Root, "b"))
	if got := f.read(a); got != "a" {
		t.Fatal(got)
	}
	if at, _ := f.t.GetAttr(a); at.Nlink != 0 {
		t.Fatal(at)
	}
	_, err = f.t.Write(c, a, 1, []byte("nd more"))
	f.ok(err)
	_, err = f.t.Link(c, a, Root, "back")
	f.want(err, syscall.ENOENT)
	f.t.Forget(c, a, 1)
	gone(a, false)
	f.t.Forget(c, a, 1)
	gone(a, true)
	gone(b, false)
	f.t.Forget(c, d, 1) // has a name: nothing happens
	gone(d, false)
	f.ok(f.t.Unlink(c, Root, "d")) // no kernel knows it: goes at once
	gone(d, true)
	dir, err := f.t.Mkdir(c, Root, "cwd", 0o755)
	f.ok(err)
	f.ok(f.t.Rmdir(c, Root, "cwd"))
	gone(dir.Ino, false)
	_, err = f.t.Create(c, dir.Ino, "x", 0o644)
	f.want(err, syscall.ENOENT)

	// A takeover: the kernel's counts from before are not known.
	p, q := create("p"), create("q")
	f.kill()
	if f.read(b) != "b" || f.w.Stat().Orphans != 2 {
		t.Fatal(f.w.Stat())
	}
	_, err = f.t.Lookup(c, Root, "p")
	f.ok(err)
	f.ok(f.t.Unlink(c, Root, "p"))
	f.ok(f.t.Unlink(c, Root, "q"))
	f.t.Forget(c, p, 1) // as many as counted: perhaps not all
	gone(p, false)
	f.t.Forget(c, q, 1) // more than counted: all
	gone(q, true)
	f.ok(f.w.EndEpoch(e))
	for _, ino := range []Ino{a, b, d, p, q, dir.Ino} {
		gone(ino, true)
	}
	if s := f.w.Stat(); s.Inodes != 1 || s.Orphans != 0 || s.Allocated != 0 {
		t.Fatalf("%+v", s)
	}
	f.kill()
	if got := f.sql("SELECT (SELECT count(*) FROM inode) || (SELECT count(*) FROM extent)"); got[0] != "10" {
		t.Fatal(got)
	}
}

func TestHostMountsEndWithTheDaemon(t *testing.T) {
	f := newFixture(t, Options{})
	e, _, err := f.w.BeginEpoch([16]byte{1}, HostMount)
	f.ok(err)
	_, _, err = f.w.BeginEpoch([16]byte{2}, GuestMount)
	f.ok(err)
	if len(f.w.Epochs()) != 2 {
		t.Fatal(f.w.Epochs())
	}
	f.kill()
	if got := f.w.Epochs(); len(got) != 1 || got[0].Kind != GuestMount || got[0].ID != [16]byte{2} || got[0].Epoch == e {
		t.Fatal(got)
	}
}

func TestWriters(t *testing.T) {
	f := newFixture(t, Options{})
	agent := Writer{Kind: "run", Name: "agent", Run: "run_abc"}
	by := func(w Writer) Caller { return Caller{UID: 1, Writer: w} }
	a, err := f.t.Create(by(agent), Root, "f", 0o644)
	f.ok(err)
	_, err = f.t.Write(Caller{}, a.Ino, 0, []byte("inferred"))
	f.ok(err)
	person := Writer{Kind: "person", Name: "ada"}
	b, err := f.t.Create(by(person), Root, "g", 0o644)
	f.ok(err)
	f.kill()
	_, err = f.t.Write(by(agent), b.Ino, 0, []byte("x"))
	f.ok(err)
	c, err := f.t.Create(by(person), Root, "h", 0o644)
	f.ok(err)
	const q = "SELECT i.ino || ' ' || w.name || ' ' || w.run || ' ' || (SELECT writer FROM version WHERE id = i.born) FROM inode i JOIN writer w ON w.id = i.writer ORDER BY i.ino"
	want := []string{fmt.Sprintf("%d ada  2", Root), fmt.Sprintf("%d agent run_abc 1", a.Ino), fmt.Sprintf("%d agent run_abc 1", b.Ino), fmt.Sprintf("%d ada  2", c.Ino)}
	if got := f.sql(q); !cmp.Equal(got, want) {
		t.Fatal(got)
	}
	if got := f.sql("SELECT count(*) FROM writer"); got[0] != "2" {
		t.Fatal(got)
	}
}

func TestSecondOpenerIsRefused(t *testing.T) {
	f := newFixture(t, Options{})
	if _, err := Open(f.dir, Options{}); holt.CodeOf(err) != holt.Conflict {
		t.Fatal(err)
	}
	if _, err := Create(f.dir, Options{}); holt.CodeOf(err) != holt.AlreadyExists {
		t.Fatal(err)
	}
	if _, err := Open(t.TempDir(), Options{}); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	f.reopen()
}

func TestDamagedBytesAreNeverReturned(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	a := f.put("f", strings.Repeat("good", 50_000))
	segs, _ := filepath.Glob(filepath.Join(f.dir, "journal", "*.seg"))
	raw, _ := os.ReadFile(segs[0])
	at := bytes.LastIndex(raw, []byte("goodgood"))
	raw[at] = 'f'
	f.ok(os.WriteFile(segs[0], raw, 0o600))
	_, err := f.t.Read(a.Ino, 199_000, make([]byte, 1000))
	f.want(err, syscall.EIO)
	if !strings.Contains(log.String(), "checksum mismatch") || !strings.Contains(log.String(), "ino=2") {
		t.Fatal(log.String())
	}
	p := make([]byte, 4)
	if _, err = f.t.Read(a.Ino, 0, p); err != nil || string(p) != "good" {
		t.Fatal(err, string(p))
	}
	f.ok(f.unlink("f"))
}

func TestCollector(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 100_000}))
	f.put("keep", strings.Repeat("k", 50_000))
	for i := range 20 {
		f.put("over", strings.Repeat(fmt.Sprint(i%10), 90_000))
	}
	before := f.w.Stat()
	f.ok(f.w.Flush())
	f.ok(f.t.collect())
	after := f.w.Stat()
	if after.Segments >= before.Segments || after.Segments > 4 {
		t.Fatal(before.Segments, after.Segments)
	}
	for range 2 {
		if f.get("keep") != strings.Repeat("k", 50_000) || f.get("over") != strings.Repeat("9", 90_000) {
			t.Fatal("contents differ")
		}
		f.kill()
	}
	// An index that is lost can then not be rebuilt: said, and nothing touched.
	f.ok(f.w.Close())
	f.w = nil
	segs, _ := filepath.Glob(filepath.Join(f.dir, "journal", "*"))
	f.ok(os.Rename(filepath.Join(f.dir, "index.db"), filepath.Join(f.dir, "kept")))
	if _, err := Open(f.dir, Options{}); holt.CodeOf(err) != holt.Corrupt {
		t.Fatal(err)
	}
	if again, _ := filepath.Glob(filepath.Join(f.dir, "journal", "*")); !cmp.Equal(segs, again) {
		t.Fatal(again)
	}
	for _, s := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(filepath.Join(f.dir, "index.db"+s))
	}
	f.ok(os.Rename(filepath.Join(f.dir, "kept"), filepath.Join(f.dir, "index.db")))
	f.open()
	f.must("keep")
}

func TestConcurrentUse(t *testing.T) {
	f := newFixture(t, Options{CacheInodes: 50, CacheEntries: 50, FlushOps: 20, SegmentSize: 1 << 20})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			dir, err := f.t.Mkdir(f.c, Root, fmt.Sprint("dir", g), 0o755)
			if err != nil {
				t.Error(err)
				return
			}
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for i := range 300 {
				name := fmt.Sprint("f", rng.IntN(40))
				a, err := f.t.Create(f.c, dir.Ino, name, 0o644)
				if err == syscall.EEXIST {
					a, err = f.t.Lookup(f.c, dir.Ino, name)
				}
				data := []byte(strings.Repeat(name, 300))
				if err == nil {
					_, err = f.t.Write(f.c, a.Ino, 0, data)
				}
				p := make([]byte, len(data))
				if err == nil {
					_, err = f.t.Read(a.Ino, 0, p)
				}
				if err != nil || !bytes.Equal(p, data) {
					t.Error(err)
					return
				}
				switch i % 5 {
				case 0:
					err = f.t.Unlink(f.c, dir.Ino, name)
				case 1:
					err = f.t.Fsync(a.Ino)
				case 2:
					err = f.t.ReadDir(f.c, dir.Ino, 0, true, func(DirEntry) bool { return true })
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	want := f.dump()
	f.kill()
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
}

func FuzzDecodeOp(f *testing.F) {
	o := op{kind: opRename, time: -5, epoch: 3, unique: 1 << 40, writer: 7, ino: 9, parent: 1, other: 2, mode: 0o7777,
		off: 1 << 59, atime: -1, mtime: 1 << 62, name: "a", name2: "\xff", blob: []byte("x"), blob2: []byte("y")}
	f.Add(o.encode(nil))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOp(b)
		if err != nil {
			return
		}
		again, err := decodeOp(o.encode(nil))
		if err != nil || !cmp.Equal(o, again, cmp.AllowUnexported(op{})) {
			t.Fatal(err, cmp.Diff(o, again, cmp.AllowUnexported(op{})))
		}
	})
}
