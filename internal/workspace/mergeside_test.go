package workspace

import (
	"context"
	"testing"

	"holt"
)

// quarrel makes one conflict of each kind.
func quarrel(t *testing.T) (f, g *fixture) {
	f, g = family(t)
	for _, x := range []*fixture{f, g} {
		x.put("src/a", x.dir+"\n") // bytes
		x.put("made", x.dir)       // made on both sides
		x.ok(x.t.SetXattr(x.c, x.must("src/b").Ino, "user.tag", []byte(x.dir), 0))
	}
	f.ok(f.unlink("top")) // removed here, changed there
	g.put("top", "changed")
	g.ok(g.unlink("old/x")) // removed there, changed here
	f.put("old/x", "changed")
	return f, g
}

func TestMergeOurs(t *testing.T) {
	f, g := quarrel(t)
	before := f.dump()
	r := f.merge(g, MergeOptions{DryRun: true})
	if len(r.Conflicts) != 5 {
		t.Fatal(r.said())
	}
	r = f.merge(g, MergeOptions{})
	if len(r.Conflicts) != 5 || len(r.Changes) > 0 {
		t.Fatal(r.said())
	}
	all := MergeOptions{Ours: []string{"/"}}
	for range 2 { // what is settled stays so
		r = f.merge(g, all)
		f.says(r)
		all = MergeOptions{}
	}
	f.kill()
	f.says(f.merge(g, MergeOptions{}))
	for path, want := range map[string]string{"src/a": f.dir + "\n", "made": f.dir, "old/x": "changed"} {
		if got := f.get(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	if d := before; len(d) != len(f.dump()) {
		t.Error("something came or went")
	}
	// The other way it is a change of one side.
	if r = g.merge(f, MergeOptions{}); len(r.Conflicts) > 0 || g.get("src/a") != f.dir+"\n" || g.get("made") != f.dir {
		t.Error(r.said(), g.get("src/a"))
	}
}

func TestMergeTheirs(t *testing.T) {
	f, g := quarrel(t)
	if r := f.merge(g, MergeOptions{}); len(r.Conflicts) != 5 {
		t.Fatal(r.said())
	}
	dry := f.merge(g, MergeOptions{Theirs: []string{"/"}, DryRun: true})
	r := f.merge(g, MergeOptions{Theirs: []string{"/"}})
	for _, r := range []MergeReport{dry, r} {
		f.says(r, "deleted /old/x", "created /top", "changed /made", "changed /src/a", "metadata /src/b")
		if len(r.Theirs) != 5 || len(r.Ours) != 0 {
			t.Error(r.Theirs, r.Ours)
		}
	}
	for _, again := range []func(*fixture){func(*fixture) {}, (*fixture).kill, (*fixture).loseIndex} {
		again(f)
		for path, want := range map[string]string{"src/a": g.dir + "\n", "made": g.dir, "top": "changed"} {
			if got := f.get(path); got != want {
				t.Errorf("%s: %q", path, got)
			}
		}
		if v, err := f.t.GetXattr(f.must("src/b").Ino, "user.tag"); err != nil || string(v) != g.dir {
			t.Error(string(v), err)
		}
		if _, err := f.stat("old/x"); err == nil {
			t.Error("what the other removed is there")
		}
		f.check()
	}
	for _, x := range [][2]*fixture{{f, g}, {g, f}} { // there is nothing left to do
		x[0].says(x[0].merge(x[1], MergeOptions{}))
	}
}

// The longest path counts, names too can be settled, and what would take along
// more than the conflict stays one.
func TestMergeSides(t *testing.T) {
	f, g := family(t)
	f.ok(f.rename("src/a", "src/mine", 0))
	g.ok(g.rename("src/a", "src/yours", 0))
	for _, x := range []*fixture{f, g} {
		x.put("src/b", x.dir)
		x.put("top", x.dir)
	}
	f.put("old/new", "keeps the directory")
	g.ok(g.unlink("old/x"))
	g.ok(g.rmdir("old"))
	r := f.merge(g, MergeOptions{Theirs: []string{"/"}, Ours: []string{"/src/b"}})
	f.says(r, "deleted /old/x", "renamed /src/a -> /src/yours", "changed /top", "conflict /old: it holds what stays")
	if len(r.Ours) != 1 || r.Ours[0] != "/src/b" {
		t.Error(r.Ours)
	}
	if f.get("src/yours") != "a1\na2\na3\n" || f.get("src/b") != f.dir || f.get("top") != g.dir {
		t.Error(f.get("src/b"), f.get("top"))
	}
	if _, err := f.stat("src/mine"); err == nil {
		t.Error("the name that was given here is there still")
	}
	_, err := f.w.Merge(context.Background(), f.c, g.w, MergeOptions{Theirs: []string{"/src/"}, Ours: []string{"/src"}})
	if holt.CodeOf(err) != holt.InvalidArgument {
		t.Error(err)
	}
}
