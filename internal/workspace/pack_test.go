package workspace

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt"
	archive "holt/internal/store/chunk"
	"holt/internal/store/journal"
)

// packFixture is a workspace with an archive in a directory.
type packFixture struct {
	*fixture
	archive *archive.Archive
	far     *archive.Fault
	root    string // of index and store
	opened  []*archive.Archive
}

func newPackFixture(t *testing.T, opt Options) *packFixture {
	t.Helper()
	p := &packFixture{root: filepath.Join(t.TempDir(), "archive")}
	t.Cleanup(func() { // after the workspace, whose last check reads from it
		for _, a := range p.opened {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	p.openArchive(t)
	opt.Archive, opt.Space, opt.KeepSegments = p.archive, "wsp_test", -1
	if opt.SegmentSize == 0 {
		opt.SegmentSize = 256 << 10
	}
	p.fixture = newFixture(t, quiet(opt))
	return p
}

func (p *packFixture) openArchive(t *testing.T) {
	t.Helper()
	s, err := archive.OpenDir(filepath.Join(p.root, "store"))
	if err != nil {
		t.Fatal(err)
	}
	p.far = &archive.Fault{Under: s}
	a, err := archive.Open(context.Background(), p.root, archive.Options{Store: p.far, HotBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.archive, p.opened = a, append(p.opened, a)
}

func (p *packFixture) pack() Packed {
	p.Helper()
	did, err := p.w.Pack(context.Background(), 0)
	if err != nil {
		p.Fatal(err)
	}
	return did
}

// fill makes n files and returns what they hold.
func (p *packFixture) fill(n int, seed uint64) map[string]string {
	p.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	want := map[string]string{}
	for i := range n {
		name := fmt.Sprint("f", seed, "-", i)
		want[name] = someLines(rng, rng.IntN(60_000))
		p.put(name, want[name])
	}
	return want
}

// adopt gives a file a content that the archive gets as two parts of another space, which is gone then.
func (p *packFixture) adopt(name, content string) {
	p.Helper()
	var sources []Source
	for i, piece := range []string{content[:len(content)/2], content[len(content)/2:]} {
		if piece == "" {
			continue
		}
		w := p.archive.Create("art_test", fmt.Sprint("body.", i))
		p.ok(w.Append(context.Background(), 0, []byte(piece)))
		_, err := w.Commit(context.Background())
		p.ok(err)
		sources = append(sources, Source{fmt.Sprint("body.", i), int64(len(piece))})
	}
	_, err := Files{Tree: p.t, Caller: p.c}.Adopt(context.Background(), "/"+name, holt.WriteSpec{}, "art_test", sources)
	p.ok(err)
	p.ok(p.archive.Drop(context.Background(), "art_test"))
}

func someLines(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "line %d of many\n", rng.IntN(1<<20))
	}
	return b.String()[:n]
}

func (p *packFixture) holds(want map[string]string) {
	p.Helper()
	for name, content := range want {
		if p.get(name) != content {
			p.Fatal("other bytes in", name)
		}
	}
}

// held checks what checkpoints see.
func (p *packFixture) held(saved map[string]map[string]string) {
	p.Helper()
	for ref, want := range saved {
		v, err := p.w.At(ref)
		p.ok(err)
		for name, content := range want {
			a, err := v.Walk("/" + name)
			p.ok(err)
			b := make([]byte, a.Size)
			if n, err := v.Read(a.Ino, 0, b); err != nil || string(b[:n]) != content {
				p.Fatal("at", ref, "other bytes in", name, err)
			}
		}
	}
}

// What is packed leaves the disk and can be read, overwritten, and read again
// after a restart, a crash and the loss of the index.
func TestPackedBytes(t *testing.T) {
	p := newPackFixture(t, Options{})
	want := p.fill(60, 1)
	before := p.w.Stat()
	did := p.pack()
	after := p.w.Stat()
	if did.Segments < 3 || did.Unlinked != did.Segments || after.JournalBytes > before.JournalBytes/2 {
		t.Fatalf("%+v: %d bytes, then %d", did, before.JournalBytes, after.JournalBytes)
	}
	p.holds(want)
	for i := range 10 {
		name := fmt.Sprint("f1-", i)
		a := p.must(name)
		_, err := p.t.Write(p.c, a.Ino, 1000, []byte("changed"))
		p.ok(err)
		old := want[name] + strings.Repeat("\x00", max(0, 1007-len(want[name])))
		want[name] = old[:1000] + "changed" + old[1007:]
	}
	p.holds(want)
	p.kill()
	p.holds(want)
	p.reopen()
	p.holds(want)
	p.check()
	for _, damage := range []func(string) error{
		os.Remove,
		func(name string) error { return os.WriteFile(name, []byte(strings.Repeat("no database", 1000)), 0o600) },
	} {
		dump := p.dump()
		p.ok(p.w.Close())
		_ = os.Remove(filepath.Join(p.dir, "index.db-wal"))
		p.ok(damage(filepath.Join(p.dir, "index.db")))
		p.open()
		if p.dump() != dump {
			t.Fatal("another tree came back")
		}
		p.check()
		more := p.fill(20, 2)
		p.pack()
		p.holds(more)
		p.holds(want)
	}
}

// Segments without live bytes stay until the archive has a copy of the index
// that needs none of their records: until then the index is nothing but them.
func TestSegmentsStayUntilIndexed(t *testing.T) {
	p := newPackFixture(t, Options{})
	for seed := uint64(1); seed < 4; seed++ {
		for name := range p.fill(40, seed) {
			p.ok(p.unlink(name))
		}
		kept := p.fill(10, 10+seed)
		p.ok(p.w.Flush())
		p.ok(p.t.collectNow(false)) // as the flusher does when a segment is sealed
		dump := p.dump()
		p.ok(p.w.Close())
		for _, suffix := range []string{"", "-wal"} {
			_ = os.Remove(filepath.Join(p.dir, "index.db"+suffix))
		}
		p.open()
		if p.dump() != dump {
			t.Fatal("another tree came back")
		}
		p.holds(kept)
		if segments := p.w.Stat().Segments; segments < 3 {
			t.Fatal("too few segments to tell", segments)
		}
		p.pack() // from here on those before are not needed
	}
}

// What is deleted leaves the archive as well.
func TestPackedGarbage(t *testing.T) {
	p := newPackFixture(t, Options{})
	p.fill(60, 1)
	p.pack()
	want := p.fill(30, 2)
	for i := range 60 { // first most of each segment, then all
		if i%5 != 0 {
			p.ok(p.unlink(fmt.Sprint("f1-", i)))
		}
	}
	before, err := p.archive.Usage(context.Background())
	p.ok(err)
	p.pack()
	after, err := p.archive.Usage(context.Background())
	p.ok(err)
	if after.Referred >= before.Referred {
		t.Fatalf("most was deleted: %+v, then %+v", before, after)
	}
	for i := 0; i < 60; i += 5 {
		p.ok(p.unlink(fmt.Sprint("f1-", i)))
	}
	p.pack()
	_, err = p.archive.Collect(context.Background(), time.Now())
	p.ok(err)
	p.holds(want)
	u, err := p.archive.Usage(context.Background())
	p.ok(err)
	names, err := p.archive.Names(context.Background(), "wsp_test")
	p.ok(err)
	rows := p.sql("SELECT count(*) FROM segment")
	if int(u.Parts) != len(names) || fmt.Sprint(len(p.t.packer.parts)+1) != fmt.Sprint(u.Parts) {
		t.Fatalf("%d segments in the archive, and %d parts; rows %v", len(p.t.packer.parts), u.Parts, rows)
	}
}

// Twenty workspaces of the same files cost what one does.
func TestPackedOnce(t *testing.T) {
	p := newPackFixture(t, Options{})
	p.fill(60, 1)
	first := p.pack()
	for i := range 3 {
		q := &packFixture{archive: p.archive, far: p.far}
		q.fixture = newFixture(t, quiet(Options{Archive: p.archive, Space: fmt.Sprint("other", i), KeepSegments: -1, SegmentSize: 200 << 10}))
		want := q.fill(60, 1)
		if did := q.pack(); did.Bytes < first.Bytes/2 || did.Stored > first.Stored/3 {
			t.Fatalf("%+v, then %+v", first, did)
		}
		q.holds(want)
	}
}

// Bytes that are wrong in the archive are EIO, and Check finds them.
func TestPackedBytesAreVerified(t *testing.T) {
	p := newPackFixture(t, Options{})
	want := p.fill(60, 1)
	p.pack()
	a := p.must("f1-0")
	p.far.SetHook(func(call, name string) archive.Failure {
		return archive.Failure{Wrong: call == "get"}
	})
	_, err := p.t.Read(a.Ino, 0, make([]byte, 100))
	p.want(err, syscall.EIO)
	report, err := p.w.Check(context.Background())
	p.ok(err)
	if len(report.Problems) == 0 {
		t.Fatal("not found")
	}
	p.far.SetHook(nil)
	p.holds(want)
}

// A failing archive keeps segments on the disk and loses nothing.
func TestPackFails(t *testing.T) {
	p := newPackFixture(t, Options{})
	want := p.fill(60, 1)
	for call := range 12 {
		n := 0
		p.far.SetHook(func(string, string) archive.Failure {
			if n++; n == call+1 {
				return archive.Failure{Err: syscall.ECONNREFUSED, Late: call%2 == 0}
			}
			return archive.Failure{}
		})
		_, err := p.w.Pack(context.Background(), 0)
		p.far.SetHook(nil)
		p.holds(want)
		if err == nil {
			break
		}
	}
	p.pack()
	p.holds(want)
	_, err := p.archive.Collect(context.Background(), time.Now())
	p.ok(err)
	p.holds(want)
}

// The packer works by itself when segments are sealed.
func TestPacksByItself(t *testing.T) {
	p := newPackFixture(t, Options{})
	p.ok(p.w.Close())
	p.opt.KeepSegments, p.opt.FlushInterval, p.opt.FlushOps = 1, time.Millisecond, 10
	p.open()
	want := map[string]string{}
	for seed := uint64(1); p.w.Stat().Segments == 0 || p.t.packer.bound() == 0; seed++ {
		if seed > 500 {
			t.Fatal("nothing was packed")
		}
		for name, content := range p.fill(20, seed) {
			want[name] = content
		}
	}
	p.holds(want)
}

// Random work with crashes inside of packing: a round, and in a soak five
// minutes of them (see runsOf). -seed repeats one.
func TestPackModel(t *testing.T) {
	t.Parallel()
	runs, done := runsOf(t, 0, time.Minute), 0
	for seed := runs.seed; seed == runs.seed || !runs.one && !runs.over() && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { packRound(t, seed, 60) })
		done++
	}
	t.Logf("seeds from %d: %d rounds", runs.seed, done)
}

func packRound(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	disk := journal.NewFaultDisk()
	p := newPackFixture(t, Options{Disk: disk, SegmentSize: 64 << 10})
	fuse, dead, images := 0, false, 0
	imageDir, imageRoot := "", ""
	power := false
	takeImage := func() {
		images++
		imageDir = filepath.Join(t.TempDir(), fmt.Sprint("image", images))
		imageRoot = imageDir + "-archive"
		d := disk
		if !power {
			d = nil
		}
		image(t, p.t, p.dir, imageDir, d, rng)
		if err := os.CopyFS(imageRoot, os.DirFS(p.root)); err != nil {
			t.Fatal(err)
		}
	}
	p.opt.Fail = func(point string) error {
		if dead {
			return syscall.EIO
		}
		if fuse > 0 {
			if fuse--; fuse == 0 {
				dead = true
				takeImage()
				return syscall.EIO
			}
		}
		return nil
	}
	p.ok(p.w.Close())
	p.open()
	want := map[string]string{}
	saved := map[string]map[string]string{} // by checkpoint
	count := map[string]int{}
	for range steps {
		for range 1 + rng.IntN(6) {
			name := fmt.Sprint("f", rng.IntN(30))
			switch n := rng.IntN(10); {
			case n < 5:
				want[name] = someLines(rng, rng.IntN(40_000))
				p.put(name, want[name])
			case n < 6:
				want[name] = someLines(rng, rng.IntN(40_000)) + "."
				p.adopt(name, want[name])
			case n < 8 && want[name] != "":
				at := rng.IntN(len(want[name]))
				_, err := p.t.Write(p.c, p.must(name).Ino, int64(at), []byte("!"))
				p.ok(err)
				want[name] = want[name][:at] + "!" + want[name][at+1:]
			case n < 9:
				if _, ok := want[name]; ok {
					delete(want, name)
					p.ok(p.unlink(name))
				}
			default:
				to := fmt.Sprint("f", rng.IntN(30))
				if from, ok := want[name]; ok && to != name && from != "" {
					want[to] = ""
					p.put(to, "")
					_, err := p.t.CopyRange(p.c, p.must(name).Ino, 0, p.must(to).Ino, 0, int64(len(from)))
					p.ok(err)
					want[to] = from
				}
			}
		}
		switch n := rng.IntN(10); {
		case n < 3:
			name := fmt.Sprint("c", len(saved))
			if _, ok := saved[name]; !ok {
				_, err := p.w.Checkpoint(CheckpointOptions{Name: name})
				p.ok(err)
				saved[name] = maps.Clone(want)
			}
		case n < 4:
			for name := range saved {
				_, err := p.w.DeleteCheckpoint(context.Background(), name, false)
				p.ok(err)
				delete(saved, name)
				break
			}
		case n < 5:
			for name := range saved {
				_, err := p.w.Restore(context.Background(), p.c, name, RestoreOptions{})
				p.ok(err)
				want = maps.Clone(saved[name])
				break
			}
		}
		p.ok(p.t.Sync())
		how := []string{"pack", "pack", "crash", "crash", "collect", "index lost"}[rng.IntN(6)]
		count[how]++
		switch how {
		case "pack":
			p.pack()
		case "collect":
			_, err := p.archive.Collect(context.Background(), time.Now())
			p.ok(err)
		case "index lost":
			p.ok(p.w.Close())
			p.ok(os.Remove(filepath.Join(p.dir, "index.db")))
			p.open()
		case "crash":
			power = rng.IntN(2) == 0
			fuse = 1 + rng.IntN(20)
			_, err := p.w.Pack(context.Background(), rng.IntN(3))
			fuse = 0
			if !dead {
				p.ok(err)
				break
			}
			p.abandon()
			p.dir, p.root, dead = imageDir, imageRoot, false
			disk = journal.NewFaultDisk()
			p.opt.Disk = disk
			p.openArchive(t)
			p.opt.Archive = p.archive
			if rng.IntN(3) == 0 {
				count["and the index"]++
				for _, suffix := range []string{"", "-wal"} {
					_ = os.Remove(filepath.Join(p.dir, "index.db"+suffix))
				}
			}
			p.open()
		}
		p.holds(want)
		p.held(saved)
		if got := len(p.list("")); got != len(want) {
			t.Fatal(got, "files, not", len(want))
		}
		p.check()
	}
	t.Log(count, "packed now", len(p.t.packer.parts))
}

// A full far store is no full disk: segments wait there until the archive has
// a copy of the index without them. On a full disk those without live bytes go.
func TestFullFarStore(t *testing.T) {
	p := newPackFixture(t, Options{})
	for name := range p.fill(60, 1) {
		p.ok(p.unlink(name))
	}
	p.ok(p.w.Flush())
	for _, far := range []bool{true, false} {
		full := holt.Errorf(holt.OutOfSpace, "planned")
		if far {
			full = holt.Errorf(holt.OutOfSpace, "planned: %w", archive.ErrFarFull)
		}
		p.far.SetHook(func(call, _ string) archive.Failure {
			if call == "put" {
				return archive.Failure{Err: full}
			}
			return archive.Failure{}
		})
		did, err := p.w.Pack(context.Background(), 0)
		if holt.CodeOf(err) != holt.OutOfSpace {
			t.Fatal(err)
		}
		if (did.Unlinked == 0) != far {
			t.Errorf("far %v: %d segments are gone", far, did.Unlinked)
		}
	}
	p.far.SetHook(nil)
	p.pack()
}
