package workspace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Segments that are dead here by the time a fork would link them are held for
// it: its index, copied before, goes on from records in them.
func TestForkHoldsSegments(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}, SegmentSize: 64 << 10}))
	f.put("file", "kept")
	f.checkpoint("kept")
	want := f.dump()
	f.put("junk", strings.Repeat("x", 50_000))
	f.t.opt.Fail = func(point string) error {
		if point != "fork.link" {
			return nil
		}
		for range 8 {
			f.put("junk", strings.Repeat("z", 50_000))
		}
		f.ok(f.w.Flush())
		return f.t.collectNow(true)
	}
	dir := filepath.Join(t.TempDir(), "fork")
	_, err := f.w.Fork(context.Background(), dir, ForkOptions{At: "kept"})
	f.t.opt.Fail = nil
	f.ok(err)
	if d := cmp.Diff(want, f.child(dir).dump()); d != "" {
		t.Error(d)
	}
	before := len(f.t.journal.Segments())
	f.ok(f.t.collectNow(true))
	if len(f.t.journal.Segments()) >= before {
		t.Error("nothing was held, or nothing was let go")
	}
}

// A fork of a checkpoint knows its directories by the paths that they had then.
func TestForkHasOldPaths(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.mkdir("old")
	f.mkdir("old/sub")
	f.put("old/sub/file", "x")
	f.checkpoint("then")
	f.ok(f.rename("old", "renamed", 0))
	f.mkdir("later")
	g := f.fork(ForkOptions{At: "then"})
	if got := g.sql("SELECT path FROM files WHERE path LIKE '/%' AND kind = 'file' ORDER BY path"); !slices.Equal(got, []string{"/old/sub/file"}) {
		t.Error(got)
	}
	if got := g.sql("SELECT CAST(path AS TEXT) FROM dir ORDER BY path"); !slices.Equal(got, []string{"/", "/old", "/old/sub"}) {
		t.Error(got)
	}
}

// What a crash leaves of a fork before its mark is no obstacle to the next one.
func TestForkAfterCrash(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.put("file", "x")
	for _, left := range [][]string{{}, {"lock"}, {"lock", halfFile}} {
		dir := filepath.Join(t.TempDir(), "fork")
		f.ok(os.Mkdir(dir, 0o700))
		for _, name := range left {
			f.ok(os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		_, err := f.w.Fork(context.Background(), dir, ForkOptions{})
		f.ok(err)
		if got := f.child(dir).get("file"); got != "x" {
			t.Error(left, got)
		}
	}
}
