package workspace

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holt"
)

// A file that is put where one is has that one's inode, owner, mode, attributes and other names, also after the
// process was killed.
func TestPutKeepsFile(t *testing.T) {
	f := newFixture(t, Options{Quota: holt.Quota{Bytes: 4 << 20}})
	files := Files{Tree: f.t, Caller: f.c, Inherit: true}
	old := f.put("conf", "an old line, and a long one")
	f.ok(f.t.SetXattr(f.c, old.Ino, "user.tag", []byte("yes"), 0))
	_, err := f.t.Link(f.c, old.Ino, Root, "other")
	f.ok(err)
	_, err = f.t.SetAttr(Caller{}, old.Ino, SetAttrs{Mask: SetMode | SetUID | SetGID, Mode: 0o6750, UID: 0, GID: 7})
	f.ok(err)
	put := func(spec holt.WriteSpec, content string) Attr {
		t.Helper()
		_, err := files.Write(t.Context(), "/conf", spec, strings.NewReader(content))
		f.ok(err)
		if got := f.get("other"); got != content {
			t.Errorf("the other name has %d bytes", len(got))
		}
		if got := f.list(""); len(got) != 2 {
			t.Errorf("left behind: %q", got)
		}
		return f.must("conf")
	}
	for _, content := range []string{"new", strings.Repeat("x", 2<<20), "", "again"} { // with the old there is room for the new once
		a := put(holt.WriteSpec{NewMode: 0o600}, content)
		if a.Ino != old.Ino || a.UID != 0 || a.GID != 7 || a.Mode&07777 != 0o6750 || a.Nlink != 2 {
			t.Errorf("%+v", a)
		}
	}
	if x, err := f.t.GetXattr(old.Ino, "user.tag"); err != nil || string(x) != "yes" {
		t.Errorf("tag %q, %v", x, err)
	}
	if a := put(holt.WriteSpec{Mode: 0o4711, User: "agent"}, "mine"); a.Ino != old.Ino || a.UID != 1000 || a.GID != 1000 || a.Mode&07777 != 0o4711 {
		t.Errorf("with a mode and an owner: %+v", a)
	}
	f.check()
	f.kill()
	if got := f.get("other"); got != "mine" {
		t.Errorf("after a kill: %q", got)
	}
	files.Tree = f.t
	_, err = f.t.Mknod(f.c, Root, "pipe", syscall.S_IFIFO|0o600, 0)
	f.ok(err)
	if _, err := files.Write(t.Context(), "/pipe", holt.WriteSpec{}, strings.NewReader("x")); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("write to a pipe: %v", err)
	}
}

// happens is a reader without bytes, at which something happens.
type happens func()

func (h happens) Read([]byte) (int, error) { h(); return 0, io.EOF }

// What the name has become while the content arrived is what is overwritten, with the owner and mode that it has then.
func TestPutLooksAgain(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c, Inherit: true}
	link := func() { _, err := f.t.Link(f.c, f.must("f").Ino, Root, "f.1"); f.ok(err) }
	for _, one := range []struct {
		name        string
		spec        holt.WriteSpec
		old         bool // a file is there first
		meanwhile   func()
		other, mode string // what the other name has; the mode
	}{
		{"rotated", holt.WriteSpec{User: "agent"}, true, func() { f.ok(f.rename("f", "f.1", 0)); f.put("f", "fresh"); f.chmod("f", 0o600) }, "old", "600"},
		{"moved away", holt.WriteSpec{}, true, func() { f.ok(f.rename("f", "f.1", 0)) }, "old", "644"},
		{"removed", holt.WriteSpec{}, true, func() { f.ok(f.unlink("f")); f.put("f.1", "") }, "", "644"},
		{"made", holt.WriteSpec{}, false, func() { f.put("f", "made"); f.chmod("f", 0o600); link() }, "new", "600"},
	} {
		if one.old {
			f.put("f", "old")
		}
		_, err := files.Write(t.Context(), "/f", one.spec, io.MultiReader(strings.NewReader("n"), happens(one.meanwhile), strings.NewReader("ew")))
		f.ok(err)
		if got, other, mode := f.get("f"), f.get("f.1"), fmt.Sprintf("%o", f.must("f").Mode&07777); got != "new" || other != one.other || mode != one.mode {
			t.Errorf("%s: it has %q and mode %s, its other name %q", one.name, got, mode, other)
		}
		if got := f.list(""); len(got) != 2 {
			t.Errorf("%s left behind: %q", one.name, got)
		}
		f.ok(f.unlink("f"))
		f.ok(f.unlink("f.1"))
	}
}

// At no time does a file have the old content with more rights than it had, or the new with more than it gets.
func TestOverwriteRights(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: Caller{}}
	pieces := f.put("pieces", "")
	for i := range compactAt + 1 {
		_, err := f.t.Write(f.c, pieces.Ino, int64(i)*8192, []byte("x"))
		f.ok(err)
	}
	for _, one := range []struct {
		old, mode uint32
		overwrite func(old Attr) error
		states    []string // size, mode and owner, in order
	}{
		{0o600, 0o4755, nil, []string{"3 600 1000", "5 4755 0"}},
		{0o644, 0o600, nil, []string{"3 644 1000", "5 600 0"}},
		{0o640, 0o606, func(old Attr) error {
			return f.t.Overwrite(Caller{}, pieces.Ino, old.Ino, SetAttrs{Mask: SetMode | SetUID | SetGID, Mode: 0o606})
		}, []string{"3 640 1000", "8388608 600 1000", "8388609 606 0"}},
	} {
		old := f.put("f", "old")
		f.chmod("f", one.old)
		var states []string
		look := func() {
			in := f.t.inodes.m[old.Ino]
			states = append(states, fmt.Sprintf("%d %o %d", in.size, in.mode&07777, in.uid))
		}
		f.t.opt.Fail = func(string) error { look(); return nil }
		if one.overwrite == nil {
			_, err := files.Write(t.Context(), "/f", holt.WriteSpec{Mode: one.mode, User: "root"}, strings.NewReader("fresh"))
			f.ok(err)
		} else {
			f.ok(one.overwrite(old))
		}
		f.t.opt.Fail = nil
		look()
		if states = slices.Compact(states); !slices.Equal(states, one.states) {
			t.Errorf("%o to %o: %q, want %q", one.old, one.mode, states, one.states)
		}
		f.kill()
		files.Tree = f.t
		if a := f.must("f"); a.Mode&07777 != one.mode || a.UID != 0 || a.GID != 0 {
			t.Errorf("%o to %o: after a kill it has mode %o, owner %d:%d", one.old, one.mode, a.Mode, a.UID, a.GID)
		}
		f.ok(f.unlink("f"))
	}
}

// Content of so many pieces that one record does not take them is whole too.
func TestOverwriteManyPieces(t *testing.T) {
	f := newFixture(t, Options{})
	a, b := f.put("a", ""), f.put("b", strings.Repeat("old", 1<<20))
	var want strings.Builder
	for i := range 2*compactAt + 7 {
		_, err := f.t.Write(f.c, a.Ino, int64(i)*8192, []byte{byte('a' + i%26)})
		f.ok(err)
		want.WriteString(string(byte('a'+i%26)) + strings.Repeat("\x00", 8191))
	}
	f.ok(f.t.Overwrite(f.c, a.Ino, b.Ino, SetAttrs{}))
	if got := f.get("b"); got != want.String()[:want.Len()-8191] {
		t.Errorf("%d bytes, want %d", len(got), want.Len()-8191)
	}
	if a = f.must("a"); a.Blocks != 0 {
		t.Errorf("the source keeps %d blocks", a.Blocks)
	}
	f.kill()
	if got := f.get("b"); got != want.String()[:want.Len()-8191] {
		t.Errorf("after a kill %d bytes, want %d", len(got), want.Len()-8191)
	}
}

// What is new belongs to the owner of its directory, and has the mode of its source less the umask.
func TestPutOwnerOfNew(t *testing.T) {
	f := newFixture(t, Options{})
	own := func(dir string, uid, gid, mode uint32) {
		t.Helper()
		_, err := f.t.SetAttr(Caller{}, f.mkdir(dir).Ino, SetAttrs{Mask: SetMode | SetUID | SetGID, Mode: mode, UID: uid, GID: gid})
		f.ok(err)
	}
	own("etc", 0, 0, 0o755)
	own("shared", 12, 34, 0o2775)
	own("all", 0, 0, 0o1777)
	for _, one := range []struct {
		path           string
		inherit        bool
		spec           holt.WriteSpec
		uid, gid, mode uint32
	}{
		{"/etc/a", true, holt.WriteSpec{}, 0, 0, 0o644},
		{"/etc/b", true, holt.WriteSpec{NewMode: 0o777}, 0, 0, 0o755},
		{"/etc/c", false, holt.WriteSpec{Mode: 0o666, NewMode: 0o600, User: "agent"}, 1000, 1000, 0o666},
		{"/etc/d/e", true, holt.WriteSpec{Parents: true}, 0, 0, 0o644},
		{"/shared/a", true, holt.WriteSpec{}, 12, 34, 0o644},
		{"/shared/b", false, holt.WriteSpec{User: "agent"}, 1000, 34, 0o644},
		{"/all/a", true, holt.WriteSpec{}, 1000, 1000, 0o644},
	} {
		files := Files{Tree: f.t, Caller: f.c, Inherit: one.inherit}
		info, err := files.Write(t.Context(), one.path, one.spec, strings.NewReader("x"))
		if err != nil || info.UID != one.uid || info.GID != one.gid || info.Mode != one.mode {
			t.Errorf("%s: %+v, %v", one.path, info, err)
		}
		dir, err := files.Mkdir(one.path+".d", 0, false)
		if err != nil || dir.UID != one.uid || dir.GID != one.gid {
			t.Errorf("%s.d: %+v, %v", one.path, dir, err)
		}
		link, err := files.Symlink(one.path+".l", "x")
		if err != nil || link.UID != one.uid || link.GID != one.gid {
			t.Errorf("%s.l: %+v, %v", one.path, link, err)
		}
	}
}

// Zeros that come become holes, at the end too.
func TestPutHoles(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c}
	zeros := strings.Repeat("\x00", 8<<20)
	for range 2 {
		info, err := files.Write(t.Context(), "/sparse", holt.WriteSpec{}, io.MultiReader(strings.NewReader("begin"), strings.NewReader(zeros), strings.NewReader("middle"), strings.NewReader(zeros)))
		f.ok(err)
		if a := f.must("sparse"); info.Size != 11+2*int64(len(zeros)) || a.Blocks*512 > 128<<10 {
			t.Errorf("%d bytes take %d", info.Size, a.Blocks*512)
		}
		if f.get("sparse") != "begin"+zeros+"middle"+zeros {
			t.Error("the content is another")
		}
	}
}
