package workspace

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// changes says a diff in lines.
func (f *fixture) changes(from, to string, paths ...string) (lines []string) {
	f.Helper()
	f.ok(f.w.Diff(context.Background(), from, to, DiffOptions{Paths: paths}, func(c Change) error {
		lines = append(lines, c.String())
		return nil
	}))
	return lines
}

func (f *fixture) checkpoint(name string) Checkpoint {
	f.Helper()
	c, err := f.w.Checkpoint(CheckpointOptions{Name: name})
	f.ok(err)
	return c
}

func (f *fixture) restore(ref string, paths ...string) Report {
	f.Helper()
	r, err := f.w.Restore(context.Background(), f.c, ref, RestoreOptions{Paths: paths})
	f.ok(err)
	return r
}

func (f *fixture) wantLines(got []string, want ...string) {
	f.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.Fatal(d)
	}
}

func TestDiff(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	f.mkdir("src/deep")
	for _, name := range []string{"src/a", "src/b", "src/c", "src/deep/x", "keep", "mode", "tag", "saved"} {
		f.put(name, "old "+name)
	}
	f.checkpoint("one")
	if got := f.changes("one", Live); got != nil {
		t.Fatal(got)
	}
	f.ok(f.unlink("src/a"))
	f.put("src/b", "new")
	f.ok(f.rename("src/c", "moved", 0))
	f.ok(f.rename("src/deep", "depth", 0))
	f.put("made", "here")
	_, err := f.t.SetAttr(f.c, f.must("mode").Ino, SetAttrs{Mask: SetMode, Mode: 0o600})
	f.ok(err)
	f.ok(f.t.SetXattr(f.c, f.must("tag").Ino, "user.t", []byte("1"), 0))
	f.put("temporary", "save")
	f.ok(f.rename("temporary", "saved", 0))
	want := []string{"deleted /src/a", "renamed /src/deep -> /depth", "renamed /src/c -> /moved", "created /made",
		"changed /saved", "changed /src/b", "metadata /mode", "metadata /tag"}
	f.wantLines(f.changes("one", Live), want...)
	f.checkpoint("two")
	f.put("later", "")
	f.ok(f.unlink("keep"))
	f.wantLines(f.changes("one", "two"), want...)
	f.wantLines(f.changes("two", Live), "deleted /keep", "created /later")
	f.wantLines(f.changes("two", "one", "/src"), "renamed /moved -> /src/c", "renamed /depth -> /src/deep", "created /src/a", "changed /src/b")
	f.reopen()
	f.wantLines(f.changes("one", "two"), want...)
}

func TestRestore(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	f.mkdir("src/deep")
	f.put("src/a", "a")
	f.put("src/deep/x", strings.Repeat("x", 100_000))
	f.put("file", "file")
	f.ok(f.t.SetXattr(f.c, f.must("file").Ino, "user.t", []byte("1"), 0))
	f.checkpoint("one")
	before := f.dump()

	var stale []Stale
	defer f.w.OnStale(func(s []Stale) { stale = append(stale, s...) })()
	deep := f.must("src/deep/x")
	f.ok(f.unlink("src/deep/x"))
	f.ok(f.rmdir("src/deep"))
	f.ok(f.rename("src", "elsewhere", 0))
	f.put("file", "other")
	f.ok(f.t.RemoveXattr(f.c, f.must("file").Ino, "user.t"))
	f.put("new", "new")
	after := f.dump()
	dry, err := f.w.Restore(context.Background(), f.c, "one", RestoreOptions{DryRun: true})
	f.ok(err)
	if f.dump() != after || len(stale) > 0 || dry.Before != 0 {
		t.Fatal("a dry run changed something")
	}
	report := f.restore("one")
	if d := cmp.Diff(dry.Changes, report.Changes); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(f.dump(), "\n")); d != "" {
		t.Fatal(d)
	}
	if f.must("src/deep/x") != deep {
		t.Fatal("the inode is another one")
	}
	if len(stale) == 0 {
		t.Fatal("no kernel was told")
	}
	if got := f.changes("one", Live); got != nil {
		t.Fatal(got)
	}
	if parent, _ := f.w.Present(); parent != 1 {
		t.Fatal("the present descends from", parent)
	}
	f.check()
	f.kill()
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(f.dump(), "\n")); d != "" {
		t.Fatal(d)
	}
	f.restore(fmt.Sprint("#", report.Before))
	if d := cmp.Diff(strings.Split(after, "\n"), strings.Split(f.dump(), "\n")); d != "" {
		t.Fatal(d)
	}
}

func TestRestorePaths(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	f.mkdir("src/sub")
	f.mkdir("other")
	f.put("src/sub/x", "x")
	f.put("src/a", "a")
	f.put("other/b", "b")
	f.put("top", "t")
	f.checkpoint("one")
	f.ok(f.rename("src/sub", "other/sub", 0)) // moved out of what is restored
	f.ok(f.rename("other/b", "src/b", 0))     // and into it
	f.put("other/sub/x", "changed")
	f.put("src/a", "changed")
	f.put("top", "changed")
	report := f.restore("one", "/src")
	if report.Before == 0 {
		t.Fatal("the present was not checkpointed")
	}
	if got := f.get("src/sub/x") + f.get("other/sub/x") + f.get("src/a") + f.get("top"); got != "xchangedachanged" {
		t.Fatal(got)
	}
	if f.must("src/sub/x").Ino == f.must("other/sub/x").Ino {
		t.Fatal("the copy is the original")
	}
	if got := f.list("src"); !cmp.Equal(got, []string{"a", "sub"}) && !cmp.Equal(got, []string{"sub", "a"}) {
		t.Fatal(got)
	}
	f.check()
	f.kill()
	f.restore("one", "/top", "/other")
	if f.get("top") != "t" || f.get("other/b") != "b" {
		t.Fatal("not restored")
	}
	f.ok(f.unlink("other/b"))
	f.ok(f.rmdir("other"))
	for _, want := range []string{"no longer exists", "has been replaced"} {
		if want == "has been replaced" {
			f.mkdir("other")
		}
		_, err := f.w.Restore(context.Background(), f.c, "one", RestoreOptions{Paths: []string{"/other/b"}})
		if holt.CodeOf(err) != holt.Conflict || !strings.Contains(err.Error(), want) {
			t.Fatal(err)
		}
	}
}

// A path that is on neither side is said to be, where nothing else would be done, and nothing is.
func TestPathsOnNeitherSide(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	f.put("src/gone", "old")
	f.put("kept", "old")
	f.checkpoint("one")
	f.ok(f.unlink("src/gone"))
	f.put("kept", "new")
	f.put("src/new", "new")
	before, checkpoints := f.dump(), len(f.w.Checkpoints())
	for _, path := range []string{"/scr", "/src/gonee", "/kept/below", "/src/new/below"} {
		for _, dry := range []bool{true, false} {
			_, err := f.w.Restore(t.Context(), f.c, "one", RestoreOptions{Paths: []string{"/kept", path}, DryRun: dry})
			if holt.CodeOf(err) != holt.NotFound || !strings.Contains(err.Error(), path) {
				t.Errorf("restore %s: %v", path, err)
			}
		}
		err := f.w.Diff(t.Context(), "one", Live, DiffOptions{Paths: []string{"/kept", path}}, func(Change) error { return nil })
		if holt.CodeOf(err) != holt.NotFound || !strings.Contains(err.Error(), path) {
			t.Errorf("diff of %s: %v", path, err)
		}
	}
	if f.dump() != before || len(f.w.Checkpoints()) != checkpoints {
		t.Error("a restore that was refused changed something")
	}
	f.wantLines(f.changes("one", Live, "/src/gone", "/src/new"), "deleted /src/gone", "created /src/new")
	f.restore("one", "/src/gone", "/src/new")
	if got := f.get("src/gone") + f.get("kept"); got != "oldnew" {
		t.Error(got)
	}
}

// What is restored of a directory that has moved out of the paths comes back
// beside it: the directory itself is left alone, and so is what it holds now.
func TestRestorePathsOfMoved(t *testing.T) {
	f := newFixture(t, Options{})
	for _, dir := range []string{"out", "src", "src/d", "src/a", "src/a/b", "top"} {
		f.mkdir(dir)
	}
	f.put("src/d/x", "x")
	f.put("src/d/y", "y")
	f.put("src/a/b/z", "z")
	f.put("top/f", "f")
	f.checkpoint("one")
	f.ok(f.rename("src/d", "out/d", 0))
	f.ok(f.unlink("out/d/y"))
	f.put("out/d/x", "changed")
	f.ok(f.rename("src/a/b", "src/b", 0)) // stays in the paths, and its directory does not
	f.ok(f.rename("src/a", "out/a", 0))
	f.restore("one", "/src")
	f.check()
	if got := f.get("src/d/x") + f.get("src/d/y") + f.get("src/a/b/z") + f.get("out/d/x"); got != "xyzchanged" {
		t.Fatal(got)
	}
	for dir, want := range map[string]string{"out/d": "x", "out/a": "", "src": "a d"} {
		names := f.list(dir)
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("%s has %q", dir, got)
		}
	}
	// What has moved into the paths goes from there, and has another name elsewhere.
	f.checkpoint("two")
	f.ok(f.rename("out/d", "src/e", 0))
	_, err := f.t.Link(f.c, f.must("src/e/x").Ino, f.must("out").Ino, "x")
	f.ok(err)
	f.put("out/x", "kept")
	f.restore("two", "/src")
	if got := f.get("out/x"); got != "kept" {
		t.Fatal(got)
	}
	f.ok(f.rename("top", "moved", 0)) // above a path
	f.put("moved/f", "changed")
	before := f.dump()
	for _, path := range []string{"/top/f", "/moved/f"} {
		_, err := f.w.Restore(t.Context(), f.c, "one", RestoreOptions{Paths: []string{path}})
		if holt.CodeOf(err) != holt.Conflict {
			t.Fatal(path, err)
		}
	}
	if f.dump() != before {
		t.Fatal("a restore that was refused changed something")
	}
	f.restore("one", "/top", "/moved")
	if f.get("top/f") != "f" {
		t.Fatal("not restored")
	}
	_, err = f.stat("moved")
	f.want(err, syscall.ENOENT)
}

func FuzzUnpackParts(f *testing.F) {
	o := op{kind: opEnter, parent: 1, name: "x", ino: 7}
	var p parts
	p.add(&o)
	p.add(&op{kind: opImage, ino: 7, mode: 0o644, btime: -5})
	f.Add(p.blobs[0])
	f.Add(packExtents(5, []extent{{off: 10, n: 4, segment: 1, place: 200, whole: 8, delta: 4}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again parts
		n, m := 0, 0
		whole := eachPart(b, func(part []byte) error {
			o, err := decodeOp(part)
			if err == nil {
				again.add(&o)
				n++
			}
			return err
		})
		for _, blob := range again.blobs {
			if err := eachPart(blob, func(part []byte) error { m++; _, err := decodeOp(part); return err }); err != nil {
				t.Fatal(err)
			}
		}
		if n != m || whole == nil && len(b) > 0 && n == 0 {
			t.Fatalf("%d parts became %d: %v", n, m, whole)
		}
		const end = 3 * windowSize
		extents, err := unpackExtents(5, end, b)
		at := int64(5)
		for _, e := range extents {
			if e.off < at || e.end() > end || e.n == 0 || uint64(e.delta)+uint64(e.n) > uint64(e.whole) {
				t.Fatalf("%+v", e)
			}
			at = e.end()
		}
		if err == nil {
			if again, err := unpackExtents(5, end, packExtents(5, extents)); err != nil || !slices.Equal(again, extents) {
				t.Fatal(err)
			}
		}
	})
}

// TestGroupWithoutEnd leaves the parts of a restore in the journal without
// their end: they are nothing, and a later restore does not take them for its own.
func TestGroupWithoutEnd(t *testing.T) {
	fail := false
	f := newFixture(t, Options{})
	f.t.opt.Fail = func(point string) error {
		if fail && point == "commit.append" && len(f.t.parts) > 0 {
			return syscall.ENOSPC
		}
		return nil
	}
	f.put("a", "old")
	f.checkpoint("c")
	f.put("a", "new")
	f.put("b", "new")
	before := f.changes("c", Live)
	fail = true
	if _, err := f.w.Restore(context.Background(), f.c, "c", RestoreOptions{}); holt.CodeOf(err) != holt.OutOfSpace {
		t.Fatal(err)
	}
	fail = false
	f.wantLines(f.changes("c", Live), before...)
	f.kill()
	f.wantLines(f.changes("c", Live), before...)
	f.restore("c", "/a")
	f.wantLines(f.changes("c", Live), "created /b")
	f.kill()
	f.wantLines(f.changes("c", Live), "created /b")
}

// TestDeathBeforeTurn recovers what was taken away and brought back, with an
// index that saw neither, and dies wherever something is committed: the next
// recovery goes on from there.
func TestDeathBeforeTurn(t *testing.T) {
	f := newFixture(t, Options{FlushOps: 1 << 30, FlushInterval: time.Hour})
	f.put("a", "one")
	f.put("b", "two")
	f.checkpoint("c")
	f.reopen()
	index := filepath.Join(f.dir, "index.db")
	old, err := os.ReadFile(index)
	f.ok(err)
	f.ok(f.unlink("a"))
	f.ok(f.unlink("b"))
	f.restore("c")
	f.abandon()
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(index + suffix); !os.IsNotExist(err) {
			f.ok(err)
		}
	}
	f.ok(os.WriteFile(index, old, 0o600))
	var deaths []string
	f.opt.Fail = func(point string) error {
		if point == "flush.committed" {
			deaths = append(deaths, filepath.Join(t.TempDir(), "ws"))
			return os.CopyFS(deaths[len(deaths)-1], os.DirFS(f.dir))
		}
		return nil
	}
	f.open()
	f.wantLines(f.changes("c", Live))
	if len(deaths) < 2 {
		t.Fatalf("the index was committed %d times", len(deaths))
	}
	for _, dir := range deaths {
		var log bytes.Buffer
		w, err := Open(dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		g := &fixture{T: t, w: w, t: w.Tree(), dir: dir}
		g.check()
		g.wantLines(g.changes("c", Live))
		g.ok(w.Close())
		if strings.Contains(log.String(), "does not fit") || strings.Contains(log.String(), "rebuilt") {
			t.Error(log.String())
		}
	}
}

// What a restore, an undo or a merge changed is announced, also if the
// checkpoint after it cannot be taken.
func TestAnnouncedDespiteError(t *testing.T) {
	f, g := family(t)
	g.put("src/a", "of the fork\n")
	var told []Stale
	defer f.w.OnStale(func(all []Stale) { told = append(told, all...) })()
	turned := false
	f.t.opt.Fail = func(point string) error {
		if point == "commit.append" && turned {
			return syscall.ENOSPC
		}
		turned = turned || point == "commit.append" && len(f.t.parts) > 0
		return nil
	}
	_, err := f.w.Merge(context.Background(), f.c, g.w, MergeOptions{})
	f.t.opt.Fail = nil
	if holt.CodeOf(err) != holt.OutOfSpace || f.get("src/a") != "of the fork\n" || len(told) == 0 {
		t.Error(err, f.get("src/a"), told)
	}
}

// Neither a restore nor an undo leaves more than the quota allows; less is fine.
func TestRestoreKeepsToQuota(t *testing.T) {
	f := newFixture(t, Options{})
	ctx := context.Background()
	f.put("big", strings.Repeat("x", 50_000))
	f.checkpoint("then")
	by := f.c
	by.Writer = Writer{Kind: "run", Name: "agent", Run: "r1"}
	f.ok(f.t.Unlink(by, Root, "big"))
	_, err := f.w.Checkpoint(CheckpointOptions{CheckpointNote: CheckpointNote{Auto: true, Run: "r1"}})
	f.ok(err)
	f.put("other", strings.Repeat("y", 50_000))
	f.w.SetQuota(holt.Quota{Bytes: 60_000})
	before := f.dump()
	_, err = f.w.Restore(ctx, f.c, "then", RestoreOptions{Paths: []string{"/big"}})
	if _, undo := f.w.Undo(ctx, f.c, "r1", RestoreOptions{}); holt.CodeOf(err) != holt.OutOfSpace || holt.CodeOf(undo) != holt.OutOfSpace {
		t.Fatal(err, undo)
	}
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal(d)
	}
	if _, err := f.w.Restore(ctx, f.c, "then", RestoreOptions{}); err != nil { // one comes and one goes
		t.Fatal(err)
	}
	f.w.SetQuota(holt.Quota{Files: 2})
	f.put("big", "less")
	_, err = f.w.Restore(ctx, f.c, "then", RestoreOptions{})
	f.ok(err)
	f.ok(f.unlink("big"))
	f.put("one", "")
	f.w.SetQuota(holt.Quota{Files: 2})
	if _, err := f.w.Restore(ctx, f.c, "then", RestoreOptions{Paths: []string{"/big"}}); holt.CodeOf(err) != holt.OutOfSpace {
		t.Error(err)
	}
}

// A file that was changed and has a new name in a new directory: the name came,
// the file changed where it was, and both go back and forth.
func TestChangedAndLinked(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("file", "before")
	f.checkpoint("c")
	f.mkdir("new")
	dir, name := f.walk("new/link")
	_, err := f.t.Link(f.c, f.must("file").Ino, dir, name)
	f.ok(err)
	f.put("file", "after")
	f.checkpoint("d")
	f.wantLines(f.changes("c", "d"), "created /new", "created /new/link", "changed /file")
	f.restore("c")
	f.wantLines(f.changes("c", Live))
	f.restore("d")
	if got := f.get("new/link"); got != "after" {
		t.Error(got)
	}
}

// What has its old times, since a restore of paths gave them back, has them also after a restore
// that gives it, or a directory, other names.
func TestRestoreKeepsTimes(t *testing.T) {
	for _, paths := range [][]string{nil, {"/d", "/moved", "/kept"}} {
		f := newFixture(t, quiet(Options{}))
		f.mkdir("d")
		f.put("d/e", "x")
		_, err := f.t.Link(f.c, f.must("d/e").Ino, Root, "kept")
		f.ok(err)
		f.checkpoint("then")
		dir, file := f.must("d"), f.must("kept")
		f.ok(f.rename("d/e", "moved", 0))
		f.restore("then", "/d", "/kept") // e comes back as a copy: it has another name
		if got := f.must("d"); got != dir {
			t.Errorf("a directory restored: %+v, want %+v", got, dir)
		}
		f.restore("then", paths...) // and now itself
		if got := f.must("d"); got != dir {
			t.Errorf("and again, with %q: %+v, want %+v", paths, got, dir)
		}
		if got := f.must("d/e"); got != file {
			t.Errorf("its file, with %q: %+v, want %+v", paths, got, file)
		}
		if _, err := f.stat("moved"); err == nil {
			t.Error("what was moved is there still")
		}
	}
}
