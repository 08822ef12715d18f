package workspace

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// What a kernel that stood still must be told is what changed, whoever did it,
// and nothing of what it never saw.
func TestStaleSince(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	d := f.mkdir("d")
	same, written, moved, gone := f.put("same", "1"), f.put("written", "1"), f.put("moved", "1"), f.put("gone", "1")
	back := f.put("d/back", "1")
	f.checkpoint("then")
	stale := func() map[Stale]bool {
		t.Helper()
		all, err := f.w.StaleSince(context.Background(), "then")
		f.ok(err)
		m := map[Stale]bool{}
		for _, s := range all {
			m[s] = true
		}
		if len(m) != len(all) {
			t.Fatalf("%v", all)
		}
		return m
	}
	if got := stale(); len(got) != 0 {
		t.Fatal(got)
	}
	f.put("written", "2")
	f.ok(f.rename("moved", "d/moved", 0))
	f.ok(f.unlink("gone"))
	f.mkdir("new")
	f.put("new/file", "1")
	f.ok(f.rename("d/back", "back", 0))
	f.ok(f.rename("back", "d/back", 0))
	want := map[Stale]bool{{Ino: Root}: true, {Ino: d.Ino}: true, {Ino: written.Ino}: true, {Ino: moved.Ino}: true, {Ino: gone.Ino}: true, {Ino: back.Ino}: true,
		{Root, "moved"}: true, {d.Ino, "moved"}: true, {Root, "gone"}: true, {Root, "new"}: true}
	if d := cmp.Diff(want, stale()); d != "" || want[Stale{Ino: same.Ino}] {
		t.Fatal(d)
	}
	if _, err := f.w.StaleSince(context.Background(), "none"); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
}

// What the kernel of a mount was not told of is told after a crash, also what was
// changed back meanwhile, until somebody says that the kernel knows, or the mount ends.
func TestUntold(t *testing.T) {
	f := newFixture(t, quiet(Options{}))
	a := f.put("a", "1")
	f.checkpoint("one")
	f.put("a", "2")
	b := f.put("b", "1")
	f.checkpoint("two")
	epoch, _, err := f.w.BeginEpoch([16]byte{1}, GuestMount)
	f.ok(err)
	is := func(want ...Stale) {
		t.Helper()
		got, err := f.w.Unnotified(context.Background())
		f.ok(err)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	restore := func(ref string) Report {
		t.Helper()
		r, err := f.w.Restore(context.Background(), f.c, ref, RestoreOptions{})
		f.ok(err)
		return r
	}
	yes, no := func() bool { return true }, func() bool { return false }
	is()
	_, err = f.t.Create(Caller{Epoch: epoch, Unique: 1}, Root, "c", 0o644) // the mount's own
	f.ok(err)
	f.ok(f.t.Unlink(Caller{Epoch: epoch, Unique: 2}, Root, "c"))
	is()
	restore("one")
	restore("two")
	all := []Stale{{Ino: Root}, {Root, "b"}, {Ino: a.Ino}, {Ino: b.Ino}}
	is(all...)
	f.kill()
	is(all...)
	f.w.MarkNotified(no)
	done := f.w.BeginDirectChange()
	f.w.MarkNotified(yes)
	done()
	is(all...)
	f.w.MarkNotified(yes)
	is()
	f.ok(f.w.Flush())
	f.kill()
	is()
	r := restore("one")
	is(all...)
	_, err = f.w.DeleteCheckpoint(context.Background(), fmt.Sprint("#", r.Before), false)
	f.ok(err)
	if _, err := f.w.Unnotified(context.Background()); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	f.kill()
	if _, err := f.w.Unnotified(context.Background()); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	f.ok(f.w.EndEpoch(epoch))
	is()
	f.put("a", "3")
	is()
}
