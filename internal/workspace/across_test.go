package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (f *fixture) across(at string, g *fixture, otherAt string) (said []string) {
	f.Helper()
	all, err := f.w.Across(context.Background(), at, g.w, otherAt)
	f.ok(err)
	for _, c := range all {
		said = append(said, c.String())
	}
	return said
}

func TestAcross(t *testing.T) {
	f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	f.mkdir("src")
	f.mkdir("doc")
	for _, name := range []string{"src/a", "src/b", "doc/c", "same", "gone"} {
		f.put(name, "of "+name)
	}
	g := f.fork(ForkOptions{Name: "parent", Child: "child", At: ""})
	h := f.fork(ForkOptions{Name: "parent", Child: "other"})
	f.put("same", "both the same")
	g.put("same", "both the same")
	f.ok(f.rename("src", "code", 0))
	f.put("code/a", "changed here")
	g.put("src/b", "changed there")
	g.put("src/new", "there")
	f.put("only", "here")
	f.ok(f.unlink("gone"))
	_, err := g.w.Checkpoint(CheckpointOptions{Name: "then"})
	g.ok(err)
	g.ok(g.unlink("doc/c"))
	want := []string{"deleted /only", "renamed /code -> /src", "created /gone", "created /src/new", "changed /src/a", "changed /src/b"}
	if d := cmp.Diff(want, f.across(Live, g, "then")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(slices.Insert(slices.Clone(want), 1, "deleted /doc/c"), f.across(Live, g, Live)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"created /doc/c"}, g.across(Live, g, "then")); d != "" {
		t.Error(d)
	}
	if got := g.across("then", h, Live); !slices.Equal(got, []string{"deleted /src/new", "changed /same", "changed /src/b"}) {
		t.Errorf("siblings: %v", got)
	}
	before := f.across(Live, g, Live)
	f.ok(f.t.SetXattr(f.c, f.must("same").Ino, "user.tag", []byte("urgent"), 0))
	g.ok(g.t.SetXattr(g.c, g.must("same").Ino, "user.tag", []byte("urgent"), 0))
	if d := cmp.Diff(before, f.across(Live, g, Live)); d != "" {
		t.Error("the same attribute on both sides: ", d)
	}
	g.ok(g.t.SetXattr(g.c, g.must("same").Ino, "user.tag", []byte("later"), 0))
	g.ok(g.t.SetXattr(g.c, g.must("doc").Ino, "user.tag", []byte("of a directory"), 0))
	if got := f.across(Live, g, Live); !slices.Contains(got, "metadata /same") || !slices.Contains(got, "metadata /doc") || len(got) != len(before)+2 {
		t.Errorf("other attributes: %v", got)
	}
	other := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
	if _, err := f.w.Across(context.Background(), Live, other.w, Live); err == nil {
		t.Error("strangers were compared")
	}
}

// files returns the files of the fixture by path, and its directories with "dir".
func (f *fixture) files() map[string]string {
	all := map[string]string{}
	var walk func(string)
	walk = func(dir string) {
		for _, name := range f.list(strings.Trim(dir, "/")) {
			name = strings.TrimSuffix(name, "/")
			if name == "." || name == ".." {
				continue
			}
			p := dir + "/" + name
			if f.must(strings.Trim(p, "/")).IsDir() {
				all[p] = "dir"
				walk(p)
			} else {
				all[p] = f.get(strings.Trim(p, "/"))
			}
		}
	}
	walk("")
	return all
}

// TestAcrossModel: what Across says, done to the one, makes the other.
func TestAcrossModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		f := newFixture(t, quiet(Options{Disk: lazyDisk{}}))
		stir(f, rnd, 30)
		g := f.fork(ForkOptions{Name: "parent", Child: "child"})
		stir(f, rnd, 12)
		stir(g, rnd, 12)
		have, want := f.files(), g.files()
		all, err := f.w.Across(t.Context(), Live, g.w, Live)
		f.ok(err)
		if d := cmp.Diff(want, apply(have, want, all)); d != "" {
			t.Fatalf("seed %d: %v\n%s", seed, all, d)
		}
	}
}

// apply does changes to have, with contents of want.
func apply(have, want map[string]string, all []Change) map[string]string {
	moves := renames{}
	for _, c := range all {
		switch c.Kind {
		case ChangeDeleted:
			delete(have, c.Path)
		case ChangeRenamed:
			moves = append(moves, [2]string{c.From, c.Path})
		}
	}
	got := map[string]string{}
	for p, content := range have {
		got[moves.path(p, 0)] = content
	}
	for _, c := range all {
		if c.Kind == ChangeCreated || c.Kind == ChangeContent || c.Content {
			got[c.Path] = want[c.Path]
		}
	}
	return got
}

// stir changes a workspace at random; what is not possible is left out.
func stir(f *fixture, rnd *rand.Rand, n int) {
	for i := range n {
		var dirs, files []string
		for p, what := range f.files() {
			if p = strings.Trim(p, "/"); what == "dir" {
				dirs = append(dirs, p)
			} else {
				files = append(files, p)
			}
		}
		slices.Sort(dirs)
		slices.Sort(files)
		pick := func(all []string) string {
			if len(all) == 0 {
				return ""
			}
			return all[rnd.IntN(len(all))]
		}
		at := strings.Trim(pick(append(dirs, ""))+"/"+fmt.Sprint("n", rnd.IntN(6)), "/")
		_, err := f.stat(at)
		free := err != nil
		switch op := rnd.IntN(10); {
		case op < 2 && free:
			f.mkdir(at)
		case op < 5 && (free || slices.Contains(files, at)):
			f.put(at, fmt.Sprint(i, rnd.IntN(1000)))
		case op < 7 && len(files) > 0 && free:
			f.ok(f.rename(pick(files), at, 0))
		case op < 8 && len(dirs) > 0 && free:
			if d := pick(dirs); !strings.HasPrefix(at+"/", d+"/") {
				f.ok(f.rename(d, at, 0))
			}
		case op < 9 && len(files) > 0:
			f.ok(f.unlink(pick(files)))
		case len(dirs) > 0:
			_ = f.rmdir(pick(dirs)) // not empty
		}
	}
}
