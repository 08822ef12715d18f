package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/store/parcel"
)

// sample is a parcel with one of everything.
func sample(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := parcel.NewWriter(&out, parcel.Totals{})
	if err != nil {
		t.Fatal(err)
	}
	const when = 1_700_000_000_123_456_789
	e := func(e parcel.Entry) {
		e.Mtime, e.Atime = when+int64(w.Sent.Entries), when-5
		if err := w.Entry(&e); err != nil {
			t.Fatal(err)
		}
	}
	e(parcel.Entry{Kind: parcel.Dir, Mode: 0o700})
	e(parcel.Entry{Kind: parcel.Dir, Name: "src", Mode: 0o751, UID: 5, GID: 6, Xattrs: []parcel.Xattr{{Name: "user.d", Value: []byte("1")}}})
	e(parcel.Entry{Kind: parcel.File, Name: "odd \xff\n", Mode: 0o4755, UID: 5, Size: 5, ID: 9, Xattrs: []parcel.Xattr{{Name: "user.t", Value: []byte("\x00v")}}})
	w.Data(0, []byte("hello"))
	e(parcel.Entry{Kind: parcel.File, Name: "sparse", Mode: 0o600, Size: 100 << 30})
	w.Data(50<<30, []byte("middle"))
	e(parcel.Entry{Kind: parcel.Symlink, Name: "link", Mode: 0o777, Target: "../\xfe"})
	w.Up()
	e(parcel.Entry{Kind: parcel.Link, Name: "again", ID: 9})
	e(parcel.Entry{Kind: parcel.Fifo, Name: "pipe", Mode: 0o620})
	e(parcel.Entry{Kind: parcel.Char, Name: "null", Mode: 0o666, Rdev: 259})
	w.Up()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (f *fixture) bring(b []byte, spec ImportSpec) (holt.TransferReport, error) {
	f.Helper()
	r, err := parcel.NewReader(bytes.NewReader(b))
	if err != nil {
		f.Fatal(err)
	}
	return f.w.Import(context.Background(), r, spec)
}

// packed is a parcel of the workspace.
func (f *fixture) packed(spec ExportSpec) []byte {
	f.Helper()
	var out bytes.Buffer
	w, err := parcel.NewWriter(&out, parcel.Totals{})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := f.w.Export(context.Background(), w, spec); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	if out.Len() > 1<<20 {
		f.Errorf("the parcel has %d bytes: holes were sent", out.Len())
	}
	return out.Bytes()
}

// unpacked is a parcel's entries by path.
func (f *fixture) unpacked(path string, spec ExportSpec) map[string]parcel.Entry {
	f.Helper()
	spec.Path = path
	r, err := parcel.NewReader(bytes.NewReader(f.packed(spec)))
	if err != nil {
		f.Fatal(err)
	}
	all, at, last := map[string]parcel.Entry{}, []string{}, ""
	for {
		event, err := r.Next()
		if err != nil {
			f.Fatal(err)
		}
		switch event {
		case parcel.Entered:
			last = strings.Join(append(at, r.Entry.Name), "/")
			e := r.Entry
			if e.Kind == parcel.Dir {
				at = append(at, e.Name)
			}
			if e.ID != 0 {
				e.ID = 1
			}
			all[last] = e
		case parcel.Bytes:
			e := all[last]
			e.Target += string(r.Data) // files have none
			all[last] = e
		case parcel.Up:
			at = at[:len(at)-1]
		case parcel.End:
			return all
		}
	}
}

func TestImportExport(t *testing.T) {
	f := newFixture(t, Options{})
	b := sample(t)
	for range 2 { // the second replaces what the first made
		report, err := f.bring(b, ImportSpec{Path: "/new/place", UID: 1000, GID: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if report.Entries != 8 || report.Bytes != 11 || report.Devices != 1 || report.LeftOut[0] != "/new/place/null" {
			t.Errorf("report %+v", report)
		}
	}
	const when = 1_700_000_000_123_456_789
	first := f.unpacked("/new/place", ExportSpec{SetID: true, Devices: true})
	delete(first, "")
	want := map[string]parcel.Entry{
		"/src": {Kind: parcel.Dir, Name: "src", Mode: 0o751, UID: 1000, GID: 1000, Mtime: when + 1, Atime: when - 5,
			Xattrs: []parcel.Xattr{{Name: "user.d", Value: []byte("1")}}},
		"/src/odd \xff\n": {Kind: parcel.File, Name: "odd \xff\n", Mode: 0o755, UID: 1000, GID: 1000, Mtime: when + 2, Atime: when - 5,
			Size: 5, ID: 1, Target: "hello", Xattrs: []parcel.Xattr{{Name: "user.t", Value: []byte("\x00v")}}},
		"/src/sparse": {Kind: parcel.File, Name: "sparse", Mode: 0o600, UID: 1000, GID: 1000, Mtime: when + 3, Atime: when - 5,
			Size: 100 << 30, Target: "middle"},
		"/src/link": {Kind: parcel.Symlink, Name: "link", Mode: 0o777, UID: 1000, GID: 1000, Mtime: when + 4, Atime: when - 5, Target: "../\xfe"},
		"/again":    {Kind: parcel.Link, Name: "again", ID: 1},
		"/pipe":     {Kind: parcel.Fifo, Name: "pipe", Mode: 0o620, UID: 1000, GID: 1000, Mtime: when + 6, Atime: when - 5},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	// Asked for, owners, set-id bits and devices come too.
	if _, err := f.bring(b, ImportSpec{Path: "/all", Owner: true, SetID: true, Devices: true}); err != nil {
		t.Fatal(err)
	}
	all := f.unpacked("/all", ExportSpec{SetID: true, Devices: true})
	if e := all["/src/odd \xff\n"]; e.Mode != 0o4755 || e.UID != 5 || e.GID != 0 {
		t.Errorf("came as %+v", e)
	}
	if e := all["/null"]; e.Rdev != 259 || e.Kind != parcel.Char {
		t.Errorf("came as %+v", e)
	}
	f.reopen()
	if diff := cmp.Diff(all, f.unpacked("/all", ExportSpec{SetID: true, Devices: true})); diff != "" {
		t.Error(diff)
	}
}

// TestImportCutOff ends an import in the middle: what came before is there,
// whole, and the report says how much.
func TestImportCutOff(t *testing.T) {
	f := newFixture(t, Options{})
	b := sample(t)
	at := bytes.Index(b, []byte("sparse"))
	report, err := f.bring(b[:at], ImportSpec{Path: "/", UID: 1, GID: 1})
	if holt.CodeOf(err) != holt.InvalidArgument || !errors.Is(err, parcel.ErrFormat) {
		t.Errorf("cut off: %v", err)
	}
	if report.Entries != 3 {
		t.Errorf("report %+v", report)
	}
	var got bytes.Buffer
	if err := (Files{Tree: f.t}).Read(context.Background(), "/src/odd \xff\n", 0, -1, &got); err != nil || got.String() != "hello" {
		t.Errorf("read %q, %v", got.String(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, _ := parcel.NewReader(bytes.NewReader(b))
	if _, err := f.w.Import(ctx, r, ImportSpec{Path: "/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestImportConflicts(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c}
	if _, err := files.Mkdir("/again", 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.bring(sample(t), ImportSpec{Path: "/"}); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("a file over a directory: %v", err)
	}
	if err := errors.Join(files.Remove(context.Background(), "/again", true), files.Remove(context.Background(), "/src", true)); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write(context.Background(), "/src", holt.WriteSpec{}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.bring(sample(t), ImportSpec{Path: "/"}); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("a directory over a file: %v", err)
	}
	if _, err := f.bring(sample(t), ImportSpec{Path: "/src"}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("into a file: %v", err)
	}
}

// TestImportChanged checks that a kernel is told of every name in directories
// that were there before, and of no other.
func TestImportChanged(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c}
	if _, err := files.Mkdir("/src", 0, false); err != nil {
		t.Fatal(err)
	}
	src, err := f.t.Resolve("/src", false)
	if err != nil {
		t.Fatal(err)
	}
	told := map[Ino][]string{}
	spec := ImportSpec{Path: "/", Changed: func(ino Ino, name string) { told[ino] = append(told[ino], name) }}
	if _, err := f.bring(sample(t), spec); err != nil {
		t.Fatal(err)
	}
	want := map[Ino][]string{Root: {"src", "again", "pipe", ""}, src.Ino: {"odd \xff\n", "sparse", "link", ""}}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	clear(told)
	spec.Path = "/deep/er"
	if _, err := f.bring(sample(t), spec); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"deep"}, told[Root]); diff != "" {
		t.Error(diff)
	}
}

// project is a parcel of n files in directories of 50, about 2 KiB each.
func project(t testing.TB, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := parcel.NewWriter(&out, parcel.Totals{})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 4096)
	w.Entry(&parcel.Entry{Kind: parcel.Dir, Mode: 0o755})
	for i := range n {
		if i%50 == 0 {
			if i > 0 {
				w.Up()
			}
			w.Entry(&parcel.Entry{Kind: parcel.Dir, Name: "dir" + string(rune('a'+i/50%26)) + strings.Repeat("x", i/50/26), Mode: 0o755})
		}
		size := rnd.IntN(len(data))
		w.Entry(&parcel.Entry{Kind: parcel.File, Name: "file" + strings.Repeat("0", i%50), Mode: 0o644, Size: int64(size), Mtime: int64(i)})
		if size > 0 {
			w.Data(0, data[:size])
		}
	}
	w.Up()
	w.Up()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func BenchmarkImport(b *testing.B) {
	const n = 30_000
	in := project(b, n)
	for b.Loop() {
		w, err := Create(b.TempDir()+"/ws", Options{})
		if err != nil {
			b.Fatal(err)
		}
		r, err := parcel.NewReader(bytes.NewReader(in))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Import(context.Background(), r, ImportSpec{Path: "/"}); err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

func BenchmarkExport(b *testing.B) {
	const n = 30_000
	w, err := Create(b.TempDir()+"/ws", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	r, err := parcel.NewReader(bytes.NewReader(project(b, n)))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Import(context.Background(), r, ImportSpec{Path: "/"}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out, err := parcel.NewWriter(io.Discard, parcel.Totals{})
		if err == nil {
			_, err = w.Export(context.Background(), out, ExportSpec{Path: "/"})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
