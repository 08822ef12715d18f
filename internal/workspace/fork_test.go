package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/store/journal"
)

// lazyDisk never waits for the disk: for tests that no power loss is part of.
type lazyDisk struct{ journal.OS }

type lazyFile struct{ journal.File }

func (lazyDisk) SyncDir(string) error { return nil }
func (lazyFile) Sync() error          { return nil }

func (d lazyDisk) OpenFile(name string, create bool) (journal.File, error) {
	f, err := d.OS.OpenFile(name, create)
	return lazyFile{f}, err
}

// fork opens a fork of f.
func (f *fixture) fork(opt ForkOptions) *fixture {
	f.Helper()
	dir := filepath.Join(f.TempDir(), "fork")
	if _, err := f.w.Fork(context.Background(), dir, opt); err != nil {
		f.Fatal(err)
	}
	return f.child(dir)
}

// child opens a workspace beside f.
func (f *fixture) child(dir string) *fixture {
	f.Helper()
	g := &fixture{T: f.T, dir: dir, opt: f.opt, c: f.c}
	if g.opt.Archive != nil {
		g.opt.Space = filepath.Base(dir)
	}
	g.open()
	g.closes()
	return g
}

// A fork has everything that its parent had: numbers, times, history; and from
// then on each goes its own way, through restarts and the loss of the index.
func TestFork(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.mkdir("src")
	f.put("src/main.go", "package main\n")
	f.ok(f.t.SetXattr(f.c, f.must("src/main.go").Ino, "user.tag", []byte("x"), 0))
	_, err := f.t.Link(f.c, f.must("src/main.go").Ino, Root, "second")
	f.ok(err)
	_, err = f.w.Checkpoint(CheckpointOptions{Name: "one"})
	f.ok(err)
	f.put("src/main.go", "package other\n")
	before := f.dump()
	g := f.fork(ForkOptions{Name: "parent", Child: "child"})
	if d := cmp.Diff(before, g.dump()); d != "" {
		t.Fatal(d)
	}
	f.put("src/main.go", "of the parent\n")
	g.put("src/main.go", "of the child\n")
	g.put("new", "of the child\n")
	f.put("new", "of the parent\n")
	for _, again := range []func(*fixture){func(*fixture) {}, (*fixture).reopen, (*fixture).kill, (*fixture).loseIndex} {
		again(f)
		again(g)
		if got := f.get("src/main.go") + f.get("new"); got != "of the parent\nof the parent\n" {
			t.Fatal(got)
		}
		if got := g.get("src/main.go") + g.get("new"); got != "of the child\nof the child\n" {
			t.Fatal(got)
		}
	}
	v, err := g.w.At("one")
	g.ok(err)
	a, err := v.Walk("/second")
	g.ok(err)
	b := make([]byte, a.Size)
	_, err = v.Read(a.Ino, 0, b)
	g.ok(err)
	if string(b) != "package main\n" {
		t.Fatalf("%q", b)
	}
	l := g.w.Lineage()
	if len(l) != 2 || l[0].ID != f.w.Lineage()[0].ID || l[0].Name != "parent" || l[0].CheckpointName != "auto-2" || l[1].ID == l[0].ID {
		t.Fatalf("%+v", l)
	}
	f.check()
	f.ok(f.w.Close())
	f.w = nil
	f.ok(os.RemoveAll(f.dir)) // the parent's end does not hurt the child
	g.reopen()
	if got := g.get("src/main.go"); got != "of the child\n" {
		t.Fatal(got)
	}
}

// loseIndex makes recovery build the index from the journal.
func (f *fixture) loseIndex() {
	f.Helper()
	f.abandon()
	for _, name := range []string{"index.db", "index.db-wal", "index.db-shm"} {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			f.Fatal(err)
		}
	}
	f.open()
}

// A fork of a checkpoint is what was then, whatever came after: renames of
// directories, deletions, what was unlinked and is held open.
func TestForkOfCheckpoint(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.mkdir("a")
	f.mkdir("a/b")
	f.mkdir("a/b/c")
	f.put("a/b/c/deep", strings.Repeat("deep ", 1000))
	f.put("gone", "gone")
	held := f.put("held", "held")
	e, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	k := Caller{Epoch: e}
	_, err = f.t.Lookup(k, Root, "held")
	f.ok(err)
	f.ok(f.unlink("held"))
	f.ok(f.w.Flush())
	_, err = f.w.Checkpoint(CheckpointOptions{Name: "then"})
	f.ok(err)
	then := f.dump()
	f.ok(f.rename("a", "z", 0))
	f.ok(f.rename("z/b", "b", 0))
	f.put("b/c/deep", "shallow")
	f.put("b/c/new", "new")
	f.ok(f.unlink("gone"))
	f.mkdir("gone")
	f.put("gone/in", "in")
	_, err = f.w.Checkpoint(CheckpointOptions{Name: "later"})
	f.ok(err)
	_, err = f.w.Restore(context.Background(), f.c, "then", RestoreOptions{})
	f.ok(err)
	f.put("gone", "again")
	now := f.dump()
	stat := func(f *fixture) Stats {
		s := f.w.Stat()
		return Stats{Inodes: s.Inodes, Files: s.Files, Dirs: s.Dirs, Bytes: s.Bytes, Allocated: s.Allocated, Orphans: s.Orphans}
	}
	g := f.fork(ForkOptions{At: "then"})
	for range 2 {
		if d := cmp.Diff(then, g.dump()); d != "" {
			t.Fatal(d)
		}
		if all := g.w.Checkpoints(); len(all) != 1 || all[0].Name != "then" {
			t.Fatalf("%+v", all)
		}
		if s := stat(g); s.Files != 2 || s.Dirs != 4 || s.Orphans != 0 || s.Bytes != 5004 {
			t.Fatalf("%+v", s)
		}
		if _, err := g.t.GetAttr(held.Ino); err != syscall.ENOENT {
			t.Fatal(err)
		}
		if parent, changed := g.w.Present(); parent != 1 || changed {
			t.Fatal(parent, changed)
		}
		g.check()
		g.loseIndex()
	}
	h := g.fork(ForkOptions{})
	h.put("mine", "mine")
	if d := cmp.Diff(now, f.dump()); d != "" {
		t.Fatal(d)
	}
	if got := len(h.w.Lineage()); got != 3 {
		t.Fatal(got)
	}
	if _, err := g.w.Fork(context.Background(), filepath.Join(t.TempDir(), "x"), ForkOptions{At: "later"}); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	if _, err := g.w.Fork(context.Background(), h.dir, ForkOptions{}); holt.CodeOf(err) != holt.AlreadyExists {
		t.Fatal(err)
	}
	f.ok(f.w.EndEpoch(e))
}

// A crash or a fault at any point of a fork leaves no child or a whole one,
// and the parent as it was.
func TestForkFaults(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 4
	}
	for i := 0; ; i += stride {
		point := forkFault(t, i, false)
		if again := forkFault(t, i, true); again != point {
			t.Fatal(point, again)
		}
		if point == "" && i > 10 {
			return
		} else if point == "" {
			t.Fatal("a fork has only ", i, " failpoints")
		}
		t.Log(point)
	}
}

// forkFault makes a fork fail, or the process die, at its nth failpoint, and
// returns its name; "" if there are fewer.
func forkFault(t *testing.T, nth int, dies bool) (at string) {
	var f *fixture
	armed := false
	parent := filepath.Join(t.TempDir(), "a")
	child, crash := filepath.Join(parent, "child"), filepath.Join(parent, "crash")
	f = newFixture(t, quiet(Options{SegmentSize: 4000, Disk: lazyDisk{}, Fail: func(point string) error {
		if !armed || nth < 0 {
			return nil
		}
		if nth--; nth >= 0 {
			return nil
		}
		at = point
		if !dies {
			return syscall.EIO
		}
		if _, err := os.Stat(child); err == nil {
			f.ok(os.CopyFS(crash, os.DirFS(child))) // what kill -9 would leave
		}
		return nil
	}}))
	f.ok(os.Mkdir(parent, 0o700))
	f.put("f", strings.Repeat("content", 1000))
	want := f.dump()
	armed = true
	_, err := f.w.Fork(context.Background(), child, ForkOptions{})
	armed = false
	if err != nil {
		if _, left := os.Stat(child); holt.CodeOf(err) != holt.Internal || !errors.Is(left, os.ErrNotExist) {
			t.Fatal(at, err, left)
		}
	} else {
		f.child(child).dies(want)
	}
	heard := at != "" && at != "commit.apply" && at != "flush.committed" // places to die, not to fail
	if heard && dies != (err == nil) {
		t.Fatal(at, err)
	}
	if _, err := os.Stat(crash); err == nil {
		if _, err := os.Stat(filepath.Join(crash, halfFile)); err != nil {
			f.child(crash).dies(want)
		} else if _, err := Open(crash, f.opt); holt.CodeOf(err) != holt.NotFound {
			t.Fatal(at, err)
		} else if _, err := os.Stat(crash); !errors.Is(err, os.ErrNotExist) {
			t.Fatal(at, "half a fork is still there after an open")
		}
	}
	if d := cmp.Diff(want, f.dump()); d != "" {
		t.Fatal(at, d)
	}
	return at
}

// dies checks a fork and closes it.
func (f *fixture) dies(want string) {
	f.Helper()
	if d := cmp.Diff(want, f.dump()); d != "" {
		f.Fatal(d)
	}
	f.check()
	f.ok(f.w.Close())
	f.w = nil
}

// What power takes before the index of a fork is on the disk is made again
// from the journal, or the fork is refused: it is never half of one.
func TestForkLosesPower(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.put("f", "content")
	want := f.dump()
	dir := filepath.Join(t.TempDir(), "child")
	_, err := f.w.Fork(context.Background(), dir, ForkOptions{})
	f.ok(err)
	f.ok(os.WriteFile(filepath.Join(dir, unsyncedFile), []byte("another boot"), 0o600))
	f.ok(os.Truncate(filepath.Join(dir, "index.db"), 5000))
	f.child(dir).dies(want)
	if _, err := os.Stat(filepath.Join(dir, unsyncedFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the mark is still there", err)
	}
}

// Writers of the parent go on while it is forked, and the child has nothing of
// what came after its checkpoint.
func TestForkBesideWriters(t *testing.T) {
	f := newFixture(t, Options{SegmentSize: 1 << 18, FlushOps: 50, Disk: lazyDisk{}})
	for i := range 50 {
		f.put(fmt.Sprint("f", i), strings.Repeat("x", i*100))
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < 3000; i++ {
			select {
			case <-stop:
				i = 3000
				continue
			default:
			}
			var a Attr
			if a, err = f.t.Create(f.c, Root, fmt.Sprint("w", i), 0o644); err == nil {
				if _, err = f.t.Write(f.c, a.Ino, 0, make([]byte, 3000)); err == nil && i >= 5 {
					err = f.t.Unlink(f.c, Root, fmt.Sprint("w", i-5))
				}
			}
		}
		ended <- err
	}()
	for range 4 {
		g := f.fork(ForkOptions{})
		c := g.w.Checkpoints()
		v, err := f.w.At(c[len(c)-1].Name)
		f.ok(err)
		var names []string
		f.ok(v.ReadDir(Root, cookieDotDot, false, func(e DirEntry) bool { names = append(names, e.Name); return true }))
		if d := cmp.Diff(names, g.list("")); d != "" {
			t.Fatal(d)
		}
		g.check()
		f.ok(g.w.Close())
		g.w = nil
	}
	close(stop)
	f.ok(<-ended)
}

// What was packed is the fork's too: it outlives the parent, with its share of
// the archive, and the loss of the fork's index.
func TestForkOfPacked(t *testing.T) {
	p := newPackFixture(t, Options{})
	want := p.fill(40, 1)
	p.pack()
	for name, content := range p.fill(10, 2) {
		want[name] = content
	}
	dir := filepath.Join(t.TempDir(), "fork")
	_, err := p.w.Fork(context.Background(), dir, ForkOptions{Space: "fork"})
	p.ok(err)
	g := &packFixture{fixture: p.child(dir), archive: p.archive}
	p.check()
	p.ok(p.w.Close())
	p.w = nil
	p.ok(os.RemoveAll(p.dir))
	p.ok(p.archive.Drop(context.Background(), "wsp_test"))
	_, err = p.archive.Collect(context.Background(), time.Now().Add(time.Hour))
	p.ok(err)
	g.holds(want)
	g.put("f1-1", "changed")
	want["f1-1"] = "changed"
	g.loseIndex() // and takes the parent's copy in the archive, with what came since
	g.holds(want)
	g.pack()
	g.loseIndex()
	g.holds(want)
	g.check()
}
