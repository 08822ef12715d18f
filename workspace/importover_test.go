package workspace

import (
	"bytes"
	"testing"

	"holt/parcel"
)

// An import over files that are there keeps their inodes, owners, attributes and other names. Two files that come under
// two names of one stay two.
func TestImportOverwrites(t *testing.T) {
	f := newFixture(t, Options{})
	old, pair := f.put("conf", "an old line, and a long one"), f.put("x", "both")
	f.ok(f.t.SetXattr(f.c, old.Ino, "user.tag", []byte("yes"), 0))
	for ino, name := range map[Ino]string{old.Ino: "other", pair.Ino: "y"} {
		_, err := f.t.Link(f.c, ino, Root, name)
		f.ok(err)
	}
	_, err := f.t.SetAttr(Caller{}, old.Ino, SetAttrs{Mask: SetUID | SetGID, UID: 12, GID: 34})
	f.ok(err)
	var b bytes.Buffer
	w, err := parcel.NewWriter(&b, parcel.Totals{})
	f.ok(err)
	f.ok(w.Entry(&parcel.Entry{Kind: parcel.Dir}))
	for name, text := range map[string]string{"conf": "new", "x": "one", "y": "two"} {
		f.ok(w.Entry(&parcel.Entry{Kind: parcel.File, Name: name, Mode: 0o640, Size: int64(len(text)), Mtime: 5}))
		f.ok(w.Data(0, []byte(text)))
	}
	f.ok(w.Up())
	f.ok(w.Close())
	told := map[Ino]bool{}
	_, err = f.bring(b.Bytes(), ImportSpec{Path: "/", UID: 1000, GID: 1000, Changed: func(ino Ino, name string) { told[ino] = told[ino] || name == "" }})
	f.ok(err)
	if a := f.must("conf"); a.Ino != old.Ino || a.UID != 12 || a.GID != 34 || a.Mode&07777 != 0o640 || a.Mtime != 5 || a.Nlink != 2 || !told[a.Ino] {
		t.Errorf("%+v, told: %v", a, told)
	}
	if x, err := f.t.GetXattr(old.Ino, "user.tag"); err != nil || string(x) != "yes" {
		t.Errorf("tag %q, %v", x, err)
	}
	for name, want := range map[string]string{"conf": "new", "other": "new", "x": "one", "y": "two"} {
		if got := f.get(name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
