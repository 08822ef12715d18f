package workspace

import (
	"context"
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
