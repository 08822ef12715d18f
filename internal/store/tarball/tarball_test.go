package tarball

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
)

// memory is files by path; those without content are directories.
type memory []holt.FileInfo

func (m memory) List(_ context.Context, _, dir string, page holt.PageSpec) (out holt.Page[holt.FileInfo], _ error) {
	for _, f := range m {
		if path.Dir(string(f.Path)) != dir || string(f.Path) <= page.Cursor {
			continue
		}
		if len(out.Items) == 2 { // several pages
			out.Next = string(out.Items[1].Path)
			return out, nil
		}
		f.Name = holt.OSString(path.Base(string(f.Path)))
		out.Items = append(out.Items, f)
	}
	return out, nil
}

func (m memory) Read(_ context.Context, _, file string, off, n int64, w io.Writer) error {
	_, err := io.WriteString(w, content(file)+"and what came since")
	return err
}

func content(file string) string { return strings.Repeat(file, 1000) }

func some() memory {
	at := time.Unix(1_700_000_000, 0)
	m := memory{}
	for _, f := range []struct{ path, kind, target string }{
		{"/top/a", "dir", ""}, {"/top/a-b", "file", ""}, {"/top/a.txt", "file", ""}, {"/top/empty", "file", ""}, {"/top/link", "symlink", "a/deep"}, {"/top/" + strings.Repeat("long", 40), "file", ""}, {"/top/pipe", "fifo", ""},
		{"/top/a/deep", "dir", ""}, {"/top/a/deep/x\xff", "file", ""},
	} {
		info := holt.FileInfo{Path: holt.OSString(f.path), Kind: f.kind, Mode: 0o644, UID: 1000, GID: 1000, ModTime: at, Target: holt.OSString(f.target)}
		if f.kind == "file" && f.path != "/top/empty" {
			info.Size = int64(len(content(f.path)))
		}
		m = append(m, info)
	}
	return m
}

func packed(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(t.Context(), some(), "", "/top", &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestIndex(t *testing.T) {
	stream := packed(t)
	x, err := Read(io.TeeReader(bytes.NewReader(append(stream, make([]byte, 4096)...)), io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if x, err = Decode(b); err != nil {
		t.Fatal(err)
	}
	for _, want := range some() {
		name := strings.TrimPrefix(string(want.Path), "/top")
		e, err := x.Find(name)
		if want.Kind == "fifo" {
			if holt.CodeOf(err) != holt.NotFound {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
			continue
		}
		if err != nil || e.Kind != want.Kind || e.Size != want.Size || e.Mode != 0o644 || e.UID != 1000 || e.Target != want.Target || !e.Info().ModTime.Equal(want.ModTime) {
			t.Errorf("%q: %+v, %v", name, e, err)
		}
		if e.Size > 0 && string(stream[e.Off:e.Off+e.Size]) != content(string(want.Path)) {
			t.Errorf("%q has other bytes", name)
		}
	}
	for dir, want := range map[string]string{"/": "a a-b a.txt empty link " + strings.Repeat("long", 40), "a": "deep", "/a/deep/": "x\xff", "empty": ""} {
		var names []string
		for _, e := range x.List(dir) {
			names = append(names, path.Base(string(e.Path)))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %q, not %q", dir, got, want)
		}
	}
	var z bytes.Buffer
	err = x.Zip(&z, func(off, n int64, w io.Writer) error { _, err := w.Write(stream[off : off+n]); return err })
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(z.Bytes()), int64(z.Len()))
	if err != nil || len(r.File) != len(some())-1 {
		t.Fatal(len(r.File), err)
	}
	f, err := r.Open("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); string(b) != content("/top/a.txt") {
		t.Errorf("a.txt in the zip archive has %d bytes, %v", len(b), err)
	}
}

// A directory without an entry is one; the later of two entries counts; a hard link has the bytes of the first name.
func TestIndexOfOthers(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, content)
	}
	put(tar.Header{Name: "./d/e/f", Mode: 0o600}, "old")
	put(tar.Header{Name: "d/e/f", Mode: 0o600}, "newer")
	put(tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "d/e/f"}, "")
	put(tar.Header{Name: "null", Typeflag: tar.TypeChar}, "")
	_ = w.Close()
	x, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]string{"d": "dir", "d/e": "dir", "d/e/f": "file", "hard": "file", "/": "dir"} {
		if e, err := x.Find(name); err != nil || e.Kind != kind || kind == "file" && string(b.Bytes()[e.Off:e.Off+e.Size]) != "newer" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if got := x.List("d"); len(got) != 1 || got[0].Path != "d/e" || got[0].Kind != "dir" {
		t.Errorf("d has %+v", got)
	}
}

// What cannot be read or copied is no error of the stream.
func TestErrorsOfTheSource(t *testing.T) {
	full := errors.New("the disk is full")
	r, w := io.Pipe()
	w.CloseWithError(full)
	for name, from := range map[string]io.Reader{"read": r, "copy": io.TeeReader(bytes.NewReader(packed(t)), w)} {
		if _, err := Read(from); err != full && err != io.ErrClosedPipe {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(bytes.NewReader(packed(t)[:1000])); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a truncated stream: %v", err)
	}
}

// Times that JSON does not have become the nearest that it has.
func TestTimes(t *testing.T) {
	for sec, year := range map[int64]int{math.MaxInt64 / 2: 9999, -1 << 40: 1, 1_700_000_000: 2023} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, ModTime: time.Unix(sec, 0), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		x, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		at := x.Entries[0].Info().ModTime
		if _, err := at.MarshalJSON(); err != nil || at.Year() != year {
			t.Errorf("%d: %s, %v", sec, at, err)
		}
	}
}

// A short stream stands for few bytes: the zip archive of it has all.
func TestHardLinksAreBounded(t *testing.T) {
	stream := func(links int) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		_ = w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 8 << 20})
		_, _ = w.Write(make([]byte, 8<<20))
		for i := range links {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeLink, Linkname: "f"}); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close()
		return &b
	}
	if x, err := Read(stream(128)); err != nil || len(x.Entries) != 129 {
		t.Error(err)
	}
	if _, err := Read(stream(140)); holt.CodeOf(err) != holt.TooMany {
		t.Error(err)
	}
}

func TestIndexIsBounded(t *testing.T) {
	x := &Index{Entries: []Entry{{Path: holt.OSString(strings.Repeat("<&>", mostIndex/4))}}}
	if b, err := x.Encode(); err != nil || len(b) > mostIndex {
		t.Error(len(b), err)
	}
	x.Entries = append(x.Entries, x.Entries[0])
	if _, err := x.Encode(); holt.CodeOf(err) != holt.TooMany {
		t.Error(err)
	}
}

// listing lists the same for each directory, without end.
type listing holt.Page[holt.FileInfo]

func (l listing) List(context.Context, string, string, holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	return holt.Page[holt.FileInfo](l), nil
}

func (listing) Read(context.Context, string, string, int64, int64, io.Writer) error { return nil }

// The agent of a guest lists its files, and may be hostile.
func TestPackOfHostileListings(t *testing.T) {
	named := func(name, next string) listing {
		return listing{Items: []holt.FileInfo{{Name: holt.OSString(name), Kind: "fifo"}}, Next: next}
	}
	for name, c := range map[string]struct {
		list listing
		want holt.Code
	}{
		"pages without end": {named("f", "more"), holt.TooMany},
		"many on a page":    {listing{Items: slices.Repeat(named("f", "").Items, MostEntries)}, holt.TooMany},
		"an empty page":     {listing{Next: "more"}, holt.Conflict},
		"deep":              {listing{Items: []holt.FileInfo{{Name: "d", Kind: "dir"}}}, holt.TooMany},
		"no name":           {named("", ""), holt.InvalidArgument},
		".":                 {named(".", ""), holt.InvalidArgument},
		"..":                {named("..", ""), holt.InvalidArgument},
		"a slash":           {named("../up", ""), holt.InvalidArgument},
		"a zero":            {named("a\x00b", ""), holt.InvalidArgument},
	} {
		if err := Pack(t.Context(), c.list, "", "/", io.Discard); holt.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Pack(context.Background(), some(), "", "/top", &b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:1000])
	f.Fuzz(func(t *testing.T, stream []byte) {
		x, err := Read(bytes.NewReader(stream))
		if err != nil {
			return
		}
		for _, e := range x.Entries {
			if e.Kind == "file" && (e.Off < 0 || e.Size < 0 || e.Off+e.Size > int64(len(stream))) {
				t.Fatalf("%+v is not in the stream of %d bytes", e, len(stream))
			}
			if _, err := Name(string(e.Path)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Find(string(e.Path)); err != nil {
				t.Fatal(err)
			}
		}
		x.List("/")
	})
}
