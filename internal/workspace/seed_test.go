package workspace

import (
	"slices"
	"testing"

	"holt"
)

// seen returns what every listing of the top has, which must all agree: of the live
// workspace, of its newest checkpoint, through the API and in an export.
func (f *fixture) seen() []string {
	f.Helper()
	live := f.list("")
	slices.Sort(live)
	c := f.checkpoint("seen")
	defer func() { _, err := f.w.DeleteCheckpoint(f.Context(), c.Name, false); f.ok(err) }()
	v, err := f.w.At(c.Name)
	f.ok(err)
	var past []string
	f.ok(v.ReadDir(Root, cookieDotDot, true, func(e DirEntry) bool { past = append(past, e.Name); return true }))
	slices.Sort(past)
	for what, got := range map[string][]string{"checkpoint": past, "API": f.listed(Files{Tree: f.t}), "API at a checkpoint": f.listed(Files{Tree: f.t, At: v})} {
		if !slices.Equal(got, live) {
			f.Errorf("%s lists %q, the top %q", what, got, live)
		}
	}
	if parts := f.unpacked("/", ExportSpec{}); len(parts) != len(live)+1 {
		f.Errorf("the export has %d entries; the top %q", len(parts), live)
	}
	return live
}

// listed lists the top one entry a page.
func (f *fixture) listed(files Files) (names []string) {
	f.Helper()
	for cursor := ""; ; {
		page, err := files.List("/", holt.PageSpec{Limit: 1, Cursor: cursor})
		f.ok(err)
		for _, e := range page.Items {
			names = append(names, string(e.Name))
		}
		if cursor = page.Next; cursor == "" {
			return names
		}
	}
}

// A new home lists nothing and has start-up files. Their first change lists them, by whoever
// and however small, and going back hides them again.
func TestSeeds(t *testing.T) {
	f := newFixture(t, Options{})
	contents := map[string][]byte{".profile": []byte("profile\n"), ".bashrc": []byte("bashrc\n")}
	f.ok(f.w.Seed(f.c, contents))
	f.checkpoint("new")
	want := func(names ...string) {
		t.Helper()
		if got := f.seen(); !slices.Equal(got, names) {
			t.Errorf("the top lists %q, want %q", got, names)
		}
	}
	want()
	f.wantLines(f.changes("new", Live))
	if got := f.get(".profile") + f.get(".bashrc"); got != "profile\nbashrc\n" {
		t.Errorf("start-up files: %q", got)
	}
	f.kill()
	want()
	f.loseIndex()
	want()
	child := f.fork(ForkOptions{})
	if names := child.list(""); len(names) > 0 {
		t.Errorf("a fork lists %q", names)
	}

	f.put("zz", "mine")
	want("zz")
	ino := f.must(".bashrc").Ino
	for name, change := range map[string]func() error{
		"chmod":  func() error { _, err := f.t.SetAttr(f.c, ino, SetAttrs{Mask: SetMode, Mode: 0o644}); return err },
		"touch":  func() error { _, err := f.t.SetAttr(f.c, ino, SetAttrs{Mask: SetMtimeNow}); return err },
		"append": func() error { _, err := f.t.Write(f.c, ino, 7, []byte("more\n")); return err },
		"tag":    func() error { return f.t.SetXattr(f.c, ino, "user.a", []byte("b"), 0) },
		"rewrite by holt": func() error {
			_, err := f.t.Write(Caller{Writer: seedWriter}, ino, 0, []byte("bashrc\n"))
			return err
		},
	} {
		f.run(name, func() { f.ok(change()) })
		want(".bashrc", "zz")
		f.loseIndex()
		want(".bashrc", "zz")
		f.restore("new", "/.bashrc")
		want("zz")
		f.loseIndex()
		want("zz")
	}
	f.ok(f.rename(".bashrc", "other", 0))
	want("other", "zz")
	f.ok(f.rename("other", ".bashrc", 0))
	want(".bashrc", "zz")
	f.ok(f.unlink(".bashrc"))
	f.ok(f.unlink(".profile"))
	want("zz")
	f.put(".bashrc", "bashrc\n")
	want(".bashrc", "zz")
}
