package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// instant is a guest with some requests behind it at a checkpoint that holds
// its mount, and what must then be true in every fork of it.
type instant struct {
	c        Checkpoint
	unique   uint64 // of the last request before
	orphan   Ino    // open, without a name
	cwd      Ino    // a directory without a name
	dump     string
	repeated []func(*fixture, Epoch) string
	first    []string // answers
}

// guest opens a mount in f, does things through it, and takes a checkpoint
// while it would stand still.
func (f *fixture) guest() (Epoch, *instant) {
	f.Helper()
	e, _, err := f.w.BeginEpoch([16]byte{7}, GuestMount)
	f.ok(err)
	f.ok(f.w.SetEpochInit(e, []byte("init"), []byte("reply")))
	i := &instant{unique: 100}
	do := func(call func(*fixture, Caller) (Attr, error)) Ino {
		f.Helper()
		i.unique++
		unique := i.unique
		run := func(f *fixture, e Epoch) (Ino, string) {
			a, err := call(f, Caller{Epoch: e, Unique: unique, UID: 5})
			return a.Ino, fmt.Sprint(a.Ino, err)
		}
		ino, answer := run(f, e)
		i.first = append(i.first, answer)
		i.repeated = append(i.repeated, func(f *fixture, e Epoch) string { _, s := run(f, e); return s })
		return ino
	}
	plain := func(call func(*fixture, Caller) error) {
		do(func(f *fixture, c Caller) (Attr, error) { return Attr{}, call(f, c) })
	}
	i.orphan = do(func(f *fixture, c Caller) (Attr, error) { return f.t.Create(c, Root, "gone", 0o600) })
	plain(func(f *fixture, c Caller) error {
		_, err := f.t.Write(c, i.orphan, 0, []byte("still open"))
		return err
	})
	plain(func(f *fixture, c Caller) error { return f.t.SetXattr(c, i.orphan, "user.a", []byte("b"), XattrCreate) })
	plain(func(f *fixture, c Caller) error { return f.t.Unlink(c, Root, "gone") })
	i.cwd = do(func(f *fixture, c Caller) (Attr, error) { return f.t.Mkdir(c, Root, "cwd", 0o700) })
	plain(func(f *fixture, c Caller) error { return f.t.Rmdir(c, Root, "cwd") })
	do(func(f *fixture, c Caller) (Attr, error) { return f.t.Mkdir(c, Root, "d", 0o700) })
	file := do(func(f *fixture, c Caller) (Attr, error) { return f.t.Create(c, Root, "a", 0o644) })
	plain(func(f *fixture, c Caller) error { _, err := f.t.Write(c, file, 0, []byte("before")); return err })
	plain(func(f *fixture, c Caller) error { return f.t.Rename(c, Root, "a", Root, "b", RenameNoReplace) })
	do(func(f *fixture, c Caller) (Attr, error) { return f.t.Link(c, file, Root, "hard") })
	i.c, err = f.w.Checkpoint(CheckpointOptions{Name: "instant", Mounts: true, Synced: true})
	f.ok(err)
	if !i.c.Mounts {
		f.Fatal("the checkpoint holds no mounts")
	}
	i.dump = f.dump()
	return e, i
}

// in checks that a fork is what was at the instant, and that its guest is
// answered as it was at first.
func (i *instant) in(g *fixture) Epoch {
	g.Helper()
	if d := cmp.Diff(i.dump, g.dump()); d != "" {
		g.Fatal(d)
	}
	all := g.w.Epochs()
	if len(all) != 1 || all[0].ID != [16]byte{7} || all[0].Kind != GuestMount {
		g.Fatalf("mounts in the fork: %+v", all)
	}
	e, resumed, err := g.w.BeginEpoch([16]byte{7}, GuestMount)
	if err != nil || !resumed {
		g.Fatal(resumed, err)
	}
	if req, rep, ok := g.w.EpochInit(e); !ok || string(req)+string(rep) != "initreply" {
		g.Fatal(req, rep)
	}
	for k, again := range i.repeated {
		if got := again(g, e); got != i.first[k] {
			g.Fatalf("request %d asked again: got %s, first %s", k, got, i.first[k])
		}
	}
	if d := cmp.Diff(i.dump, g.dump()); d != "" {
		g.Fatal(d)
	}
	v, err := g.t.GetXattr(i.orphan, "user.a")
	if g.read(i.orphan) != "still open" || err != nil || string(v) != "b" {
		g.Fatal(string(v), err)
	}
	if a, err := g.t.GetAttr(i.cwd); err != nil || a.Nlink != 0 || !a.IsDir() {
		g.Fatal(a, err)
	}
	return e
}

// goesOn lets a guest do other things than the one it was forked from did,
// under the same numbers.
func (i *instant) goesOn(g *fixture, e Epoch, name string) {
	g.Helper()
	next := func(n uint64) Caller { return Caller{Epoch: e, Unique: i.unique + n, UID: 5} }
	for range 2 { // and asks again
		_, err := g.t.Mkdir(next(1), Root, name, 0o755)
		g.ok(err)
		_, err = g.t.Write(next(2), i.orphan, 10, []byte(" in "+name))
		g.ok(err)
		g.ok(g.t.Rename(next(3), Root, "b", Root, "a", RenameNoReplace))
	}
	if got := g.read(i.orphan); got != "still open in "+name {
		g.Fatal(got)
	}
}

// A fork of a checkpoint that holds mounts is a place where the guest can go on
// that was there then, whatever became of its other self since.
func TestForkWithMounts(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}, SegmentSize: 1 << 16}))
	e, i := f.guest()
	i.goesOn(f, e, "parent")
	f.w.Acknowledge(e, i.unique+3)
	f.t.Forget(Caller{Epoch: e}, i.orphan, 1)
	if _, err := f.t.GetAttr(i.orphan); err != syscall.ENOENT {
		t.Fatal(err)
	}
	for k := range 40 { // more segments than answers are kept for
		f.put(fmt.Sprint("filler", k), strings.Repeat("x", 1<<15))
	}
	f.ok(f.w.EndEpoch(e))
	_, _, err := f.w.BeginEpoch([16]byte{8}, GuestMount) // a cold start
	f.ok(err)
	f.ok(f.w.Flush())
	parent := f.dump()

	for k, again := range []func(*fixture){func(*fixture) {}, (*fixture).reopen, (*fixture).kill, (*fixture).loseIndex} {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("fork", k))
		if _, err := f.w.Fork(context.Background(), dir, ForkOptions{At: "instant", Mounts: true}); err != nil {
			t.Fatal(err)
		}
		g := f.child(dir)
		again(g)
		ge := i.in(g)
		again(g)
		i.in(g)
		i.goesOn(g, ge, "child")
		want := g.dump()
		again(g)
		for k, ask := range i.repeated {
			if got := ask(g, ge); got != i.first[k] {
				t.Fatalf("request %d asked again: got %s, first %s", k, got, i.first[k])
			}
		}
		if d := cmp.Diff(want, g.dump()); d != "" {
			t.Fatal(d)
		}
		// A fork of the fork: of the same instant, and of a later one.
		h := g.fork(ForkOptions{At: "instant", Mounts: true})
		i.in(h)
		later := filepath.Join(t.TempDir(), "later")
		if _, err := g.w.Fork(context.Background(), later, ForkOptions{Mounts: true}); err != nil {
			t.Fatal(err)
		}
		l := g.child(later)
		again(l)
		if d := cmp.Diff(want, l.dump()); d != "" {
			t.Fatal(d)
		}
		if got := i.repeated[0](l, l.w.Epochs()[0].Epoch); got != i.first[0] {
			t.Fatal(got)
		}
		// The guest ends: nothing is kept for it.
		g.w.Acknowledge(ge, i.unique+4)
		g.ok(g.w.EndEpoch(ge))
		if s := g.w.Stat(); s.Orphans != 0 {
			t.Fatalf("%+v", s)
		}
	}
	if d := cmp.Diff(parent, f.dump()); d != "" {
		t.Fatal(d)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if _, err := f.w.Fork(context.Background(), plain, ForkOptions{At: "instant"}); err != nil {
		t.Fatal(err)
	}
	g := f.child(plain)
	if s := g.w.Stat(); len(g.w.Epochs()) != 0 || s.Orphans != 0 {
		t.Fatalf("a fork without mounts has %+v, %+v", g.w.Epochs(), s)
	}
}

// What nobody but a checkpoint holds can be told, and goes with it.
func TestDeleteCheckpointWithMounts(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	e, i := f.guest()
	f.t.Forget(Caller{Epoch: e}, i.orphan, 1)
	f.t.Forget(Caller{Epoch: e}, i.cwd, 1)
	f.ok(f.w.EndEpoch(e))
	would, err := f.w.DeleteCheckpoint(context.Background(), "instant", true)
	f.ok(err)
	freed, err := f.w.DeleteCheckpoint(context.Background(), "instant", false)
	f.ok(err)
	// The orphan, its bytes and its attribute, the directory, a mount and its answers.
	if want := int64(4 + 1 + len(i.first)); would != freed || freed.Rows != want || freed.Bytes != int64(len("still open")) {
		t.Fatal(would, freed, want)
	}
	f.ok(f.w.Flush())
	if got := f.sql("SELECT (SELECT count(*) FROM past_inode WHERE nlink = 0) || (SELECT count(*) FROM past_extent) || (SELECT count(*) FROM checkpoint)"); got[0] != "000" {
		t.Fatal(got)
	}
	_, err = f.w.Fork(context.Background(), filepath.Join(t.TempDir(), "fork"), ForkOptions{At: "instant", Mounts: true})
	if holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	f.checkpoint("plain")
	dir := filepath.Join(t.TempDir(), "fork")
	_, err = f.w.Fork(context.Background(), dir, ForkOptions{At: "plain", Mounts: true})
	if _, there := os.Stat(dir); holt.CodeOf(err) != holt.Conflict || there == nil {
		t.Fatal(err, there)
	}
}

// A mount of the host is not held, and a checkpoint may hold none.
func TestCheckpointWithoutGuests(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	_, _, err := f.w.BeginEpoch([16]byte{1}, HostMount)
	f.ok(err)
	f.put("f", "1")
	g := f.fork(ForkOptions{Mounts: true})
	if len(g.w.Epochs()) != 0 || g.get("f") != "1" {
		t.Fatal(g.w.Epochs())
	}
}

// With an archive, a fork goes on with its mounts also from a copy of the index.
func TestForkWithMountsFromArchive(t *testing.T) {
	p := newPackFixture(t, Options{Disk: lazyDisk{}})
	_, i := p.guest()
	p.fill(20, 1)
	dir := filepath.Join(t.TempDir(), "fork")
	if _, err := p.w.Fork(context.Background(), dir, ForkOptions{At: "instant", Mounts: true, Space: "fork"}); err != nil {
		t.Fatal(err)
	}
	g := p.child(dir)
	e := i.in(g)
	for k := range 12 {
		g.put(fmt.Sprint("later", k), string(make([]byte, 100<<10)))
	}
	if _, err := g.w.Pack(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if g.t.journal.Complete() {
		t.Fatal("no segment went")
	}
	g.loseIndex()
	for k, ask := range i.repeated {
		if got := ask(g, e); got != i.first[k] {
			t.Fatalf("request %d asked again: got %s, first %s", k, got, i.first[k])
		}
	}
	i.goesOn(g, e, "child")
}

// A guest that never acknowledges bounds what is kept for it by itself.
func TestHeldIsBounded(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	e, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	f.ok(f.w.SetEpochInit(e, make([]byte, mostInit), make([]byte, mostInit)))
	a := f.put("f", "")
	for n := range mostReplies + 100 {
		_, err := f.t.SetAttr(Caller{Epoch: e, Unique: uint64(n+1) << 50}, a.Ino, SetAttrs{Mask: SetMode})
		f.ok(err)
	}
	_, err = f.w.Checkpoint(CheckpointOptions{Name: "c", Mounts: true})
	f.ok(err)
	freed, err := f.w.DeleteCheckpoint(context.Background(), "c", true)
	if err != nil || freed.Rows != 1+mostReplies {
		t.Fatal(freed, err)
	}
}

func FuzzUnpackMounts(f *testing.F) {
	f.Add([]byte{heldVersion})
	f.Add(packMounts([]heldMount{
		{number: 1, id: [16]byte{1}, request: []byte("init"), reply: []byte("reply"), answers: []heldAnswer{{5, reply{ino: 2}}, {4, reply{ino: 3, n: 1 << 40}}}},
		{number: 1 << 40, id: [16]byte{2}, answers: []heldAnswer{{1 << 63, reply{ino: 1<<63 - 1}}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := unpackMounts(b)
		if err != nil {
			return
		}
		again, err := unpackMounts(packMounts(all))
		if err != nil || len(all)+len(again) > 0 && !reflect.DeepEqual(all, again) {
			t.Fatalf("%+v came back as %+v, %v", all, again, err)
		}
	})
}

// What came back after the checkpoint and is open without a name by now is
// not there for a mount that goes on in a fork.
func TestForkForgetsReturned(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.put("back", "x")
	f.checkpoint("begun")
	back := f.must("back").Ino
	f.ok(f.unlink("back"))
	e, _ := f.guest()
	f.restore("begun")
	_, err := f.t.Lookup(Caller{Epoch: e}, Root, "back")
	f.ok(err)
	f.ok(f.unlink("back"))
	g := f.fork(ForkOptions{At: "instant", Mounts: true})
	if a, err := g.t.GetAttr(back); err != syscall.ENOENT {
		t.Error(a, err)
	}
	g.check()
}
