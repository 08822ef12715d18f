package gvisor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/engine/machine"
)

// put writes a header to a new file.
func put(t *testing.T, path string, h DiskHeader) error {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return h.Write(f)
}

func TestHeader(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk")
	h := DiskHeader{Root: "/images/röot \"1\".ext4", Base: machine.Base{Path: "/disks/a", Format: DiskFormat}}
	for range 2 { // the second replaces a longer one
		long := DiskHeader{Root: "/" + strings.Repeat("r", 1000), Base: h.Base}
		if err := put(t, path, long); err != nil {
			t.Fatal(err)
		}
		if err := put(t, path, h); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadDiskHeader(path); err != nil || got != h {
			t.Errorf("read %+v (%v), wrote %+v", got, err, h)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() != HeaderBytes {
		t.Errorf("header of %d bytes (%v)", info.Size(), err)
	}
}

// TestHeaderRename: a disk gets another base by its other name, in whichever directory.
func TestHeaderRename(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "disk"), filepath.Join(dir, "next")
	h := DiskHeader{Root: "/root.ext4", Base: machine.Base{Path: "/root.ext4"}}
	over := machine.Base{Path: path, Format: DiskFormat}
	if err := put(t, path, h.Rename(next, over)); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadDiskHeader(path); err != nil || got != h {
		t.Errorf("before: %+v (%v)", got, err)
	}
	if err := os.Mkdir(dir+"/moved", 0o700); err != nil {
		t.Fatal(err)
	}
	want := DiskHeader{Root: h.Root, Base: over}
	for _, name := range []string{next, filepath.Join(dir, "moved", "next")} {
		if err := os.Rename(path, name); err != nil {
			t.Fatal(err)
		}
		path = name
		if got, err := ReadDiskHeader(path); err != nil || got != want {
			t.Errorf("as %s: %+v (%v), want %+v", path, got, err, want)
		}
	}
}

func TestHeaderTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	kept := DiskHeader{Root: "/root.ext4"}
	if err := put(t, path, kept); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	long := "/" + strings.Repeat("x", HeaderBytes/2)
	for _, h := range []DiskHeader{
		{Root: "/" + strings.Repeat("x", HeaderBytes)},
		{Root: long, Base: machine.Base{Path: long}},
		DiskHeader{Root: long}.Rename(long, machine.Base{Path: "/"}),
	} {
		if err := h.Write(f); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("a header that is too long: %v", err)
		}
	}
	if got, err := ReadDiskHeader(path); err != nil || got != kept {
		t.Errorf("afterwards: root %.40q (%v)", got.Root, err)
	}
}

func TestHeaderInvalid(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadDiskHeader(filepath.Join(dir, "absent")); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("no disk: %v", err)
	}
	pad := func(text string) []byte { return append([]byte(text), make([]byte, HeaderBytes)...) }
	for name, b := range map[string][]byte{
		"empty":         nil,
		"short":         []byte(diskMagic + `{"root":"/r"}`),
		"zeros":         pad(""),
		"qcow2":         pad("QFI\xfb"),
		"no JSON":       pad(diskMagic + "{"),
		"no root":       pad(diskMagic + "{}"),
		"relative root": pad(diskMagic + `{"root":"r"}`),
		"other version": pad("holt sandbox disk\n" + `{"root":"/r"}`),
		"unterminated":  append([]byte(diskMagic+`{"root":"/r"}`), bytes.Repeat([]byte("x"), HeaderBytes)...),
	} {
		path := filepath.Join(dir, "disk")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := ReadDiskHeader(path); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, text := range []string{"", `{"root":"/r"}`, `{"root":"/r","base":{"Path":"/b","Format":"qcow2"},"next":{"name":"n","base":{"Path":"/c"}}}`, `{"root":"/r","next":null}`, `{"root":"/\ud800"}`} {
		f.Add(append([]byte(diskMagic+text), 0, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			if holt.CodeOf(err) != holt.Corrupt || h != (DiskHeader{}) {
				t.Errorf("%+v, %v", h, err)
			}
			return
		}
		if !filepath.IsAbs(h.Root) {
			t.Errorf("root %q", h.Root)
		}
		for _, path := range []string{"/", "/n"} {
			if h.at(path).Next != nil {
				t.Error("it has a next base still")
			}
		}
		path := filepath.Join(t.TempDir(), "disk")
		if err := put(t, path, h); err != nil {
			if holt.CodeOf(err) != holt.InvalidArgument {
				t.Error(err)
			}
			return
		}
		b, err = os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseHeader(b); err != nil || cmp.Diff(h, again) != "" {
			t.Errorf("%+v (%v), written and read from %+v", again, err, h)
		}
	})
}
