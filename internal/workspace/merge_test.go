package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// merge merges g into f.
func (f *fixture) merge(g *fixture, opt MergeOptions) MergeReport {
	f.Helper()
	by := f.c
	by.Writer = Writer{Kind: "person", Name: "merger"}
	r, err := f.w.Merge(context.Background(), by, g.w, opt)
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// said lists changes and conflicts on a line each.
func (r MergeReport) said() (all []string) {
	for _, c := range r.Changes {
		all = append(all, c.String())
	}
	for _, c := range r.Conflicts {
		all = append(all, "conflict "+c.Path+": "+c.Reason)
		if strings.Contains(c.Code.Sentence(), "_") {
			all = append(all, "no code: "+string(c.Code))
		}
	}
	for _, path := range r.Merged {
		all = append(all, "text "+path)
	}
	return all
}

func (f *fixture) says(r MergeReport, want ...string) {
	f.Helper()
	if d := cmp.Diff(want, r.said()); d != "" {
		f.Error(d)
	}
}

// family is a workspace with some files, and a fork of it.
func family(t *testing.T) (f, g *fixture) {
	f = newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.mkdir("src")
	f.put("src/a", "a1\na2\na3\n")
	f.put("src/b", "b\n")
	f.put("top", "top\n")
	f.mkdir("old")
	f.put("old/x", "x\n")
	return f, f.fork(ForkOptions{Name: "parent", Child: "child"})
}

// A file that was replaced there, came back and went again, both having been
// merged, is known here as one: it is in conflict once, and again.
func TestMergeReplacedTwice(t *testing.T) {
	f, g := family(t)
	c := g.checkpoint("c")
	g.put("new", "other\n")
	g.ok(g.rename("new", "top", 0))
	f.says(f.merge(g, MergeOptions{}), "changed /top")
	g.restore(c.Name)
	f.says(f.merge(g, MergeOptions{}), "changed /top")
	g.ok(g.unlink("top"))
	f.put("top", "mine\n")
	for range 2 {
		f.says(f.merge(g, MergeOptions{}), "conflict /top: it was changed here and removed there")
	}
}

// What only the fork changed is taken: bytes, attributes, names, links, new and
// removed directories; in a dry run nothing is. What the parent did since stays.
func TestMerge(t *testing.T) {
	f, g := family(t)
	run := g.c
	run.Writer = Writer{Kind: "run", Name: "agent", Run: "r9"}
	_, err := g.t.Write(run, g.must("src/a").Ino, 3, []byte("A2"))
	g.ok(err)
	_, err = g.t.SetAttr(g.c, g.must("src/b").Ino, SetAttrs{Mask: SetMode, Mode: 0o755})
	g.ok(err)
	g.ok(g.t.SetXattr(g.c, g.must("src/b").Ino, "user.tag", []byte("v"), 0))
	g.ok(g.rename("top", "src/top", 0))
	g.mkdir("new")
	g.mkdir("new/deep")
	g.put("new/deep/file", strings.Repeat("new bytes\n", 300_000))
	_, err = g.t.Link(g.c, g.must("new/deep/file").Ino, Root, "linked")
	g.ok(err)
	_, err = g.t.Symlink(g.c, Root, "link", "src/a")
	g.ok(err)
	g.ok(g.unlink("old/x"))
	g.ok(g.rmdir("old"))
	f.put("mine", "of the parent\n")
	f.ok(f.rename("src", "lib", 0))
	before := f.dump()
	numbers := f.must("lib/a").Ino

	r := f.merge(g, MergeOptions{DryRun: true})
	want := []string{"deleted /old/x", "deleted /old", "renamed /top -> /src/top", "created /link", "created /linked", "created /new",
		"created /new/deep", "created /new/deep/file", "changed /src/a", "metadata /src/b"}
	f.says(r, want...)
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal("after a dry run:", d)
	}
	r = f.merge(g, MergeOptions{Name: "child", Into: "parent"})
	f.says(r, want...)
	if r.Before == 0 || r.After <= r.Before || r.From == 0 {
		t.Fatalf("%+v", r)
	}
	for _, again := range []func(*fixture){func(*fixture) {}, (*fixture).kill, (*fixture).loseIndex} {
		again(f)
		if got := f.get("lib/a") + f.get("lib/top") + f.get("mine"); got != "a1\nA2\na3\ntop\nof the parent\n" {
			t.Fatal(got)
		}
		if got := f.get("new/deep/file"); got != g.get("new/deep/file") || f.must("linked") != f.must("new/deep/file") || f.must("linked").Nlink != 2 {
			t.Fatal(len(got), f.must("linked"), f.must("new/deep/file"))
		}
		if a := f.must("lib/b"); a.Mode&07777 != 0o755 || f.must("lib/a").Ino != numbers || f.must("lib/a").Mtime != g.must("src/a").Mtime {
			t.Fatal(a)
		}
		if v, err := f.t.GetXattr(f.must("lib/b").Ino, "user.tag"); err != nil || string(v) != "v" {
			t.Fatal(string(v), err)
		}
		if _, err := f.stat("old"); err != syscall.ENOENT {
			t.Fatal(err)
		}
		f.check()
	}
	// The bytes are the run's, the change is the merger's.
	events, err := f.w.History(context.Background(), "/lib/a")
	f.ok(err)
	if e := events[0]; e.By.Name != "merger" || e.Author.Run != "r9" {
		t.Fatalf("%+v", e)
	}
	f.says(f.merge(g, MergeOptions{})) // nothing is left
	_, err = f.w.Restore(context.Background(), f.c, fmt.Sprint("#", r.Before), RestoreOptions{})
	f.ok(err)
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal("after going back:", d)
	}
	f.says(f.merge(g, MergeOptions{}), want...) // it can be merged anew
}

// What both changed stays as it is here, is named, and is named again until it
// is settled; the rest is merged.
func TestMergeConflicts(t *testing.T) {
	f, g := family(t)
	for _, x := range []struct {
		*fixture
		name string
	}{{f, "ours"}, {g, "theirs"}} {
		x.put("src/a", x.name+"\n")
		x.put("made", x.name+"\n")
		x.put("same", "both\n")
		x.mkdir("dir")
		x.put("dir/"+x.name, x.name)
	}
	f.ok(f.unlink("src/b"))
	g.put("src/b", "changed\n")
	f.put("old/x", "changed\n")
	g.ok(g.unlink("old/x"))
	g.ok(g.rmdir("old"))
	f.ok(f.rename("top", "here", 0))
	g.ok(g.rename("top", "there", 0))
	g.put("clean", "clean\n")
	before := map[string]string{}
	for _, path := range []string{"src/a", "made", "same", "old/x", "here", "dir/ours"} {
		before[path] = f.get(path)
	}
	conflicts := []string{
		"conflict /made: it was made on both sides, differently",
		"conflict /old: it holds what stays",
		"conflict /old/x: it was changed here and removed there",
		"conflict /src/a: its bytes were changed on both sides",
		"conflict /src/b: it was removed here and changed there",
		"conflict /there: it was renamed or removed on both sides"}
	f.says(f.merge(g, MergeOptions{}), append([]string{"created /clean", "created /dir/theirs"}, conflicts...)...)
	for path, want := range before {
		if got := f.get(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := f.get("clean") + f.get("dir/theirs"); got != "clean\ntheirs" {
		t.Fatal(got)
	}
	f.says(f.merge(g, MergeOptions{}), conflicts...)
	f.put("made", "theirs\n") // settled for the other's
	g.put("src/a", "ours\n")  // and for this one's
	g.put("clean", "clean still\n")
	f.says(f.merge(g, MergeOptions{}), slices.Concat([]string{"changed /clean"}, conflicts[1:3], conflicts[4:])...)
}

// Merges go on from the last, in both directions, and between forks.
func TestMergeAgain(t *testing.T) {
	f, g := family(t)
	g.put("new", "1\n")
	g.mkdir("made")
	f.says(f.merge(g, MergeOptions{}), "created /made", "created /new")
	f.ok(f.rename("made", "src/moved", 0))
	f.ok(f.rename("new", "renamed", 0))
	g.put("made/in", "in\n")
	g.put("new", "2\n")
	f.put("src/b", "of the parent\n")
	f.says(f.merge(g, MergeOptions{}), "created /made/in", "changed /new")
	if got := f.get("src/moved/in") + f.get("renamed"); got != "in\n2\n" {
		t.Fatal(got)
	}
	g.says(g.merge(f, MergeOptions{}), "renamed /new -> /renamed", "renamed /made -> /src/moved", "changed /src/b")
	if d := cmp.Diff(f.names(), g.names()); d != "" {
		t.Fatal(d)
	}
	f.put("renamed", "3\n")
	g.put("src/moved/in", "in 3\n")
	g.says(g.merge(f, MergeOptions{}), "changed /renamed")
	f.says(f.merge(g, MergeOptions{}), "changed /src/moved/in")
	if d := cmp.Diff(f.names(), g.names()); d != "" {
		t.Fatal(d)
	}
	h := g.fork(ForkOptions{})
	h.put("renamed", "of the grandchild\n")
	h.put("more", "more\n")
	f.says(f.merge(h, MergeOptions{}), "created /more", "changed /renamed")
	g.says(g.merge(h, MergeOptions{}), "created /more", "changed /renamed")
	f.says(f.merge(g, MergeOptions{})) // what came to both from a third is the same
	if d := cmp.Diff(f.names(), g.names()); d != "" {
		t.Fatal(d)
	}
}

// names lists paths and contents.
func (f *fixture) names() (all []string) {
	f.Helper()
	for _, path := range f.sql("SELECT path FROM files ORDER BY path") {
		a := f.must(path[1:])
		if a.IsRegular() {
			path += " " + f.read(a.Ino)
		}
		all = append(all, path)
	}
	return all
}

// Only what is asked for is merged, with the directories that it lies in, and
// is remembered as merged.
func TestMergePaths(t *testing.T) {
	f, g := family(t)
	g.mkdir("new")
	g.mkdir("new/deep")
	g.put("new/deep/one", "1")
	g.put("new/two", "2")
	g.put("src/a", "a\n")
	g.ok(g.unlink("src/b"))
	f.says(f.merge(g, MergeOptions{Paths: []string{"/new/deep/one", "src/a"}}), "created /new/deep/one", "changed /src/a")
	if got := f.get("new/deep/one") + f.get("src/a") + f.get("src/b"); got != "1a\nb\n" {
		t.Fatal(got)
	}
	g.put("src/a", "a again\n")
	f.says(f.merge(g, MergeOptions{}), "deleted /src/b", "created /new/two", "changed /src/a")
	if _, err := f.w.Merge(context.Background(), f.c, g.w, MergeOptions{Paths: []string{""}}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		opt := MergeOptions{Paths: []string{"/src", "/nosuch"}, DryRun: dry, Name: "child"}
		if _, err := f.w.Merge(context.Background(), f.c, g.w, opt); holt.CodeOf(err) != holt.NotFound || !strings.Contains(err.Error(), "/nosuch in child") {
			t.Fatal(err)
		}
	}
	f.put("mine", "1")
	f.says(f.merge(g, MergeOptions{Paths: []string{"/mine", "/src/b", "/old", "/"}})) // it is here, was there, is the same
	g.put("new/three", "3")
	f.says(f.merge(g, MergeOptions{}), "created /new/three")
	g.ok(g.unlink("new/three"))
	f.says(f.merge(g, MergeOptions{Paths: []string{"/new/three"}}), "deleted /new/three")
}

// Programs replace files by renaming new ones: that is a change of the file.
// Text is merged by lines if asked for, whichever way it was written.
func TestMergeText(t *testing.T) {
	for _, replaced := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		f, g := family(t)
		for i, x := range []*fixture{f, g} {
			text := []string{"a1 ours\na2\na3\n", "a1\na2\na3 theirs\n"}[i]
			if replaced[i] {
				x.put("src/.a.tmp", text)
				x.ok(x.rename("src/.a.tmp", "src/a", 0))
			} else {
				x.put("src/a", text)
			}
		}
		f.says(f.merge(g, MergeOptions{}), "conflict /src/a: its bytes were changed on both sides")
		f.says(f.merge(g, MergeOptions{Text: true}), "changed /src/a", "text /src/a")
		if got := f.get("src/a"); got != "a1 ours\na2\na3 theirs\n" {
			t.Fatal(got)
		}
		g.put("src/a", "a1\na2\na3 again\n")
		f.says(f.merge(g, MergeOptions{Text: true}), "changed /src/a", "text /src/a")
		if got := f.get("src/a"); got != "a1 ours\na2\na3 again\n" {
			t.Fatal(got)
		}
		f.put("src/a", "x\n")
		g.put("src/a", "y\n")
		f.says(f.merge(g, MergeOptions{Text: true}), "conflict /src/a: the same lines were changed on both sides")
	}
}

// Directories that each side moved into the other's stay where they are.
func TestMergeLoop(t *testing.T) {
	f, g := family(t)
	f.ok(f.rename("src", "old/src", 0))
	g.ok(g.rename("old", "src/old", 0))
	f.says(f.merge(g, MergeOptions{}), "conflict /src/old: it would lie in itself")
}

// Of two links each side removes one: the file stays, with what was written here.
func TestMergeLastLink(t *testing.T) {
	f, g := family(t)
	_, err := f.t.Link(f.c, f.put("one", "before").Ino, Root, "two")
	f.ok(err)
	g.merge(f, MergeOptions{})
	f.ok(f.unlink("one"))
	g.ok(g.unlink("two"))
	g.put("one", "of the fork")
	g.says(g.merge(f, MergeOptions{}), "conflict /two: each side removed other names of it")
	if got := g.get("one"); got != "of the fork" {
		t.Error(got)
	}
}

// Workspaces of no family are refused, and so is a workspace and itself.
func TestMergeRefused(t *testing.T) {
	f, g := family(t)
	other := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	for _, x := range []*fixture{other, f} {
		if _, err := f.w.Merge(context.Background(), f.c, x.w, MergeOptions{}); holt.CodeOf(err) != holt.InvalidArgument {
			t.Fatal(err)
		}
	}
	g.put("new", strings.Repeat("x", 5000))
	f.w.SetQuota(holt.Quota{Bytes: 1000})
	before := f.dump()
	if _, err := f.w.Merge(context.Background(), f.c, g.w, MergeOptions{}); holt.CodeOf(err) != holt.OutOfSpace {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, f.dump()); d != "" {
		t.Fatal(d)
	}
	f.w.SetQuota(holt.Quota{})
	for _, c := range g.w.Checkpoints() {
		_, err := g.w.DeleteCheckpoint(context.Background(), c.Name, false)
		g.ok(err)
	}
	if _, err := f.w.Merge(context.Background(), f.c, g.w, MergeOptions{}); holt.CodeOf(err) != holt.Conflict {
		t.Fatal(err)
	}
}

// What merge3 says of random edits is what either side said, and it is the
// same the other way round.
func TestMerge3(t *testing.T) {
	for _, x := range []struct{ base, ours, theirs, want string }{
		{"1\n2\n3\n", "1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n"},
		{"1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n", "0\n1\n2\n3\n4\n"},
		{"1\n2\n3\n", "1\n3\n", "1\n3\n", "1\n3\n"},
		{"1\n2\n3\n", "1\nx\n3\n", "1\ny\n3\n", "-"},
		{"1\n2\n3\n", "x\n2\n3\n", "1\ny\n3\n", "-"},
		{"1\n2\n3\n", "x\n2\n3\n", "1\n2\ny\n", "x\n2\ny\n"},
		{"1\n", "1\na\n", "1\nb\n", "-"},
		{"", "a\n", "a\n", "a\n"},
		{"1\n2\n", "", "1\n2\n", ""},
		{"1\n2", "1\n2", "0\n1\n2", "0\n1\n2"},
	} {
		got, ok := merge3([]byte(x.base), []byte(x.ours), []byte(x.theirs))
		if !ok {
			got = []byte("-")
		}
		if string(got) != x.want {
			t.Errorf("%q: %q and %q: %q", x.base, x.ours, x.theirs, got)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	edit := func(lines []string, from, to int) []string {
		out := slices.Clone(lines[:from])
		for i := from; i < to; i++ {
			switch rng.IntN(6) {
			case 0:
			case 1:
				out = append(out, fmt.Sprint("new ", rng.IntN(100), "\n"), lines[i])
			case 2:
				out = append(out, fmt.Sprint("other ", rng.IntN(100), "\n"))
			default:
				out = append(out, lines[i])
			}
		}
		return append(out, lines[to:]...)
	}
	join := func(l []string) []byte { return []byte(strings.Join(l, "")) }
	for range 500 {
		var base []string
		for i := range 4 + rng.IntN(30) {
			base = append(base, fmt.Sprint("line ", i, "\n"))
		}
		// Edits in halves that do not touch always merge, to both of them.
		mid := 1 + rng.IntN(len(base)-2)
		ours, theirs := edit(base, 0, mid), edit(base, mid+1, len(base))
		want := join(append(slices.Clone(ours[:len(ours)-(len(base)-mid)]), append([]string{base[mid]}, theirs[mid+1:]...)...))
		got, ok := merge3(join(base), join(ours), join(theirs))
		back, ok2 := merge3(join(base), join(theirs), join(ours))
		if !ok || !ok2 || string(got) != string(want) || string(back) != string(want) {
			t.Fatalf("%q\n%q\n%q\n%v %q\nwant %q", base, ours, theirs, ok, got, want)
		}
		ours, theirs = edit(base, 0, len(base)), edit(base, 0, len(base))
		got, ok = merge3(join(base), join(ours), join(theirs))
		back, ok2 = merge3(join(base), join(theirs), join(ours))
		if ok != ok2 || string(got) != string(back) {
			t.Fatalf("%q\n%q\n%q\n%q\n%q", base, ours, theirs, got, back)
		}
		if got, ok = merge3(join(base), join(ours), join(base)); !ok || string(got) != string(join(ours)) {
			t.Fatal("one side's edits are not taken")
		}
	}
}
