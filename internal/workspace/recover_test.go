package workspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/journal"
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

// image copies the workspace in dir as a crash now would leave it. With disk,
// bytes that were not synced may be lost: of the journal by page, of the
// index's log from some place on behind its last commit that was synced. t is
// who has the workspace open, or had.
func image(tb testing.TB, t *Tree, dir, dst string, disk *journal.FaultDisk, rng *rand.Rand) {
	tb.Helper()
	if err := os.MkdirAll(dst, 0o700); err != nil {
		tb.Fatal(err)
	}
	unsynced := 1 << 30
	if t != nil && t.dir == dir && t.index.conn != nil {
		unsynced = t.index.db.Unsynced()
	}
	for _, name := range []string{"index.db", "index.db-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		if disk != nil && name == "index.db-wal" {
			least, most := logged(b, unsynced)
			if rng.IntN(2) == 0 {
				most = least
			}
			b = b[:least+rng.IntN(most-least+1)]
		}
		if err := os.WriteFile(filepath.Join(dst, name), b, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if disk == nil {
		disk, rng = journal.NewFaultDisk(), rand.New(rand.NewPCG(0, 0))
	}
	if err := disk.Image(filepath.Join(dir, "journal"), filepath.Join(dst, "journal"), rng); err != nil {
		tb.Fatal(err)
	}
}

// logged returns where the last commit of a log of SQLite ends, and where the
// one does before the last n. SQLite syncs the log before it copies its pages
// to the database, which it does after a commit that makes it 4,000 pages long:
// such a log is synced. (Format: sqlite.org/fileformat2.html#the_write_ahead_log)
func logged(wal []byte, n int) (synced, end int) {
	const head, frame = 32, 24
	if len(wal) < head {
		return 0, len(wal)
	}
	page := int(binary.BigEndian.Uint32(wal[8:]))
	ends := []int{0}
	pages, at := 0, head
	for ; at+frame+page <= len(wal) && bytes.Equal(wal[at+8:at+16], wal[16:24]); at += frame + page { // of this turn of the log
		if pages++; binary.BigEndian.Uint32(wal[at+4:]) != 0 { // a commit
			ends = append(ends, at+frame+page)
		}
	}
	last := len(ends) - 1
	if pages >= 4000 {
		return ends[last], ends[last]
	}
	return ends[max(0, last-n)], ends[last]
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
			image(t, f.t, f.dir, c.dir, disk, rng)
		} else {
			image(t, f.t, f.dir, c.dir, nil, nil)
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

func TestKillAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	crashTest(t, 0, false)
}

func TestPowerLossAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	seeds := uint64(3)
	if testing.Short() {
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

// otherSchema replaces the index by one that another version of holt made.
func (f *fixture) otherSchema() {
	f.Helper()
	for _, s := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(filepath.Join(f.dir, "index.db"+s))
	}
	d, err := db.Open(filepath.Join(f.dir, "index.db"), "CREATE TABLE meta(key TEXT PRIMARY KEY, value); CREATE TABLE inode(x)", "")
	f.ok(err)
	f.ok(d.Close())
}

func TestIndexOfAnotherVersionIsRebuilt(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 100_000}))
	f.mkdir("d")
	f.put("d/f", strings.Repeat("content", 10_000))
	f.put("g", strings.Repeat("more", 10_000))
	want := f.dump()
	f.abandon()
	f.otherSchema()
	f.open()
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
	f.kill() // and it is this version's from then on
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(d)
	}
}

// An index of other tables is made again from the journal: all that is not in
// files, the history, who wrote what, tags and what was merged, comes back too.
func TestIndexOfOtherTablesIsRebuilt(t *testing.T) {
	f, g := family(t)
	g.put("theirs", "made there\n")
	f.says(f.merge(g, MergeOptions{}), "created /theirs")
	f.checkpoint("first")
	f.run("run_1", func() {
		f.put("src/a", "by a run\n")
		f.ok(f.t.SetXattr(f.c, f.must("src/a").Ino, "user.urgent", []byte("yes"), 0))
		f.ok(f.unlink("old/x"))
	})
	f.checkpoint("second")
	f.put("top", "later\n")
	questions := []string{
		"SELECT path || ' ' || size || ' ' || writer || ' ' || coalesce(run, '') || ' ' || ino || ' ' || mtime_ns FROM files ORDER BY 1",
		"SELECT checkpoint || path || coalesce(run, '') FROM files_at ORDER BY 1", "SELECT path || name || value FROM tags", "SELECT checkpoint || path || value FROM tags_at ORDER BY 1",
		"SELECT name || ' ' || coalesce(parent, 0) || auto || coalesce(note, '') || coalesce(run, '') || created_at || files || bytes FROM checkpoints",
		"SELECT hex(origin) || theirs || ' ' || ours FROM twin", "SELECT hex(other) || ino || ' ' || mine || ' ' || theirs FROM merged", "SELECT n || name FROM lineage",
	}
	told := func() (all []string) {
		for _, q := range questions {
			rows := f.sql(q)
			if len(rows) == 0 {
				t.Error("nothing is told by ", q)
			}
			all = append(all, rows...)
		}
		return append(all, f.dump())
	}
	want := told()
	f.abandon()
	const older = "DROP VIEW files; CREATE VIEW files AS SELECT 'of an older version' AS path; PRAGMA user_version = 600000000"
	if out, err := exec.Command("sqlite3", filepath.Join(f.dir, "index.db"), older).CombinedOutput(); err != nil {
		t.Fatalf("install sqlite3: %v\n%s", err, out)
	}
	f.open()
	if d := cmp.Diff(want, told()); d != "" {
		t.Fatal(d)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "index.db.old")); err != nil {
		t.Error("the older index was not put aside: ", err)
	}
	if r, _ := f.undo("run_1", RestoreOptions{}); len(r.Changes) != 2 {
		t.Error(r.Changes)
	}
	f.says(f.merge(g, MergeOptions{})) // it is known what was merged
}

// Views, indexes and statistics of an older version are made anew where they
// are, so that a workspace opens whose journal no longer tells all.
func TestOlderViewsAreMadeAnew(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 256 << 10}))
	for i := range 30 {
		f.put("over", strings.Repeat(fmt.Sprint(i%10), 90_000))
	}
	f.run("run_1", func() { f.put("last", "x") })
	f.ok(f.w.Flush())
	f.ok(f.t.collect())
	if f.t.journal.Complete() {
		t.Fatal("the index could be made from the journal")
	}
	told := func() []string {
		return append(f.sql("SELECT path || size || mtime_ns || coalesce(run, '') FROM files ORDER BY 1"),
			f.sql("SELECT type || name || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")...)
	}
	want, dump := told(), f.dump()
	f.abandon()
	const older = "DROP VIEW files; CREATE VIEW files AS SELECT 'of an older version' AS path; CREATE VIEW gone AS SELECT 1; DROP INDEX inode_mtime;" +
		"CREATE INDEX inode_mtime ON inode(size); DROP INDEX entry_ino; CREATE INDEX inode_gone ON inode(mode); DROP TABLE sqlite_stat1; PRAGMA application_id = 600000000"
	if out, err := exec.Command("sqlite3", filepath.Join(f.dir, "index.db"), older).CombinedOutput(); err != nil {
		t.Fatalf("install sqlite3: %v\n%s", err, out)
	}
	f.open()
	if d := cmp.Diff(want, told()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(dump, f.dump()); d != "" {
		t.Error(d)
	}
	if got := f.sql("SELECT count(*) FROM sqlite_stat1"); got[0] != "4" {
		t.Error("statistics: ", got)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "index.db.old")); err == nil {
		t.Error("the index was put aside")
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
	want := []string{fmt.Sprintf("%d ada  0", Root), fmt.Sprintf("%d agent run_abc 0", a.Ino), fmt.Sprintf("%d agent run_abc 1", b.Ino), fmt.Sprintf("%d ada  2", c.Ino)}
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
	f.otherSchema()
	if _, err := Open(f.dir, Options{}); holt.CodeOf(err) != holt.Unsupported {
		t.Fatal(err)
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
	rounds := 300
	if underRace {
		rounds = 100
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			dir, err := f.t.Mkdir(f.c, Root, fmt.Sprint("dir", g), 0o755)
			if err != nil {
				t.Error(err)
				return
			}
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for i := range rounds {
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

// A process that dies in the middle of a replay leaves an index that can be
// gone on from, also where the segments before it were collected.
func TestDeathInReplay(t *testing.T) {
	f := newFixture(t, quiet(Options{SegmentSize: 1 << 16}))
	for i := range 4 { // the last of them lives in the third segment or later
		f.put("gone", string(bytes.Repeat([]byte{byte(i)}, 30_000)))
	}
	f.ok(f.w.Flush())
	f.ok(f.t.collect())
	if f.t.journal.Complete() {
		t.Fatal("no segment was collected: this test shows nothing")
	}
	f.ok(f.w.Flush())
	for i := range 20 {
		f.put(fmt.Sprint("file", i), string(bytes.Repeat([]byte{byte(i)}, 30_000)))
	}
	want := f.dump()
	f.abandon()
	var deaths []string
	f.opt.FlushOps = 1
	f.opt.Fail = func(point string) error {
		if point == "flush.committed" {
			deaths = append(deaths, filepath.Join(t.TempDir(), "ws"))
			return os.CopyFS(deaths[len(deaths)-1], os.DirFS(f.dir))
		}
		return nil
	}
	f.open()
	if len(deaths) < 20 {
		t.Fatalf("the index was committed %d times", len(deaths))
	}
	for _, dir := range deaths {
		g := &fixture{T: t, dir: dir, opt: quiet(Options{}), c: f.c}
		g.open()
		if got := g.dump(); got != want {
			t.Fatal(cmp.Diff(want, got))
		}
		g.check()
		g.ok(g.w.Close())
	}
}
