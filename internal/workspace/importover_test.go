package workspace

import (
	"bytes"
	"testing"

	"holt/internal/store/parcel"
)

// An import over files that are there keeps their owners and attributes, and their inodes unless they have other names: those
// keep the file as it is. Two files that come under two names of one are two.
func TestImportOverwrites(t *testing.T) {
	f := newFixture(t, Options{})
	conf, shared, pair := f.put("conf", "an old line, and a long one"), f.put("shared", "old"), f.put("x", "both")
	for ino, name := range map[Ino]string{shared.Ino: "backup", pair.Ino: "y"} {
		_, err := f.t.Link(f.c, ino, Root, name)
		f.ok(err)
	}
	for _, a := range []Attr{conf, shared} {
		f.ok(f.t.SetXattr(f.c, a.Ino, "user.tag", []byte("yes"), 0))
		_, err := f.t.SetAttr(Caller{}, a.Ino, SetAttrs{Mask: SetUID | SetGID, UID: 12, GID: 34})
		f.ok(err)
	}
	shared = f.must("shared")
	var b bytes.Buffer
	w, err := parcel.NewWriter(&b, parcel.Totals{})
	f.ok(err)
	f.ok(w.Entry(&parcel.Entry{Kind: parcel.Dir}))
	for name, text := range map[string]string{"conf": "new", "shared": "new", "x": "one", "y": "two"} {
		f.ok(w.Entry(&parcel.Entry{Kind: parcel.File, Name: name, Mode: 0o640, Size: int64(len(text)), Mtime: 5}))
		f.ok(w.Data(0, []byte(text)))
	}
	f.ok(w.Up())
	f.ok(w.Close())
	told := map[Ino]bool{}
	_, err = f.bring(b.Bytes(), ImportSpec{Path: "/", UID: 1000, GID: 1000, Changed: func(ino Ino, name string) { told[ino] = told[ino] || name == "" }})
	f.ok(err)
	for _, name := range []string{"conf", "shared"} {
		a := f.must(name)
		if a.UID != 12 || a.GID != 34 || a.Mode&07777 != 0o640 || a.Mtime != 5 || a.Nlink != 1 || !told[a.Ino] {
			t.Errorf("%s: %+v, told: %v", name, a, told)
		}
		if x, err := f.t.GetXattr(a.Ino, "user.tag"); err != nil || string(x) != "yes" {
			t.Errorf("tag of %s: %q, %v", name, x, err)
		}
	}
	if a := f.must("conf"); a.Ino != conf.Ino {
		t.Errorf("inode %d, was %d", a.Ino, conf.Ino)
	}
	if a := f.must("backup"); a.Ino != shared.Ino || a.Mode != shared.Mode || a.Mtime != shared.Mtime {
		t.Errorf("the other name has %+v, had %+v", a, shared)
	}
	for name, want := range map[string]string{"conf": "new", "shared": "new", "backup": "old", "x": "one", "y": "two"} {
		if got := f.get(name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
