package parcel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// plant makes a directory with a file of each kind.
func plant(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must(os.MkdirAll(at("a/b/empty"), 0o755))
	must(os.WriteFile(at("a/plain"), []byte("hello"), 0o640))
	must(os.WriteFile(at("a/odd \xff\n\tname"), []byte("x"), 0o600))
	must(os.WriteFile(at("a/"+strings.Repeat("n", 255)), nil, 0o600))
	must(os.WriteFile(at("a/program"), []byte("#!/bin/sh\n"), 0o755))
	must(os.Chmod(at("a/program"), 0o755|os.ModeSetuid|os.ModeSetgid))
	must(os.Link(at("a/plain"), at("a/b/second")))
	must(os.Symlink("../nowhere/\xfe", at("a/link")))
	must(os.Symlink("/etc", at("etc")))
	must(unix.Mkfifo(at("pipe"), 0o622))
	must(unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(os.WriteFile(at("big"), bytes.Repeat([]byte("0123456789abcdef"), 200_000), 0o644))
	must(os.WriteFile(at("sparse"), nil, 0o644))
	f, err := os.OpenFile(at("sparse"), os.O_WRONLY, 0)
	must(err)
	_, err = f.WriteAt([]byte("middle"), 3<<30)
	must(err)
	must(f.Truncate(5 << 30))
	must(f.Close())
	must(unix.Setxattr(at("a/plain"), "user.tag", []byte("v\x00\xff"), 0))
	must(unix.Setxattr(at("a/b"), "user.dir", []byte("d"), 0))
	acl := []byte("\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x07\x00\xe9\x03\x00\x00\x04\x00\x05\x00\xff\xff\xff\xff" +
		"\x10\x00\x07\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff")
	must(unix.Setxattr(at("a/b"), "system.posix_acl_default", acl, 0))
	must(unix.Setxattr(at("big"), "system.posix_acl_access", acl, 0))
	must(os.Chmod(at("a/b/empty"), 0o555))
	for _, name := range []string{"a/plain", "a/link", "a/b/empty", "a/b", "a", "pipe", "big"} {
		times := []unix.Timespec{{Sec: 1_000_000_000, Nsec: 5}, {Sec: 1_700_000_000, Nsec: 123_456_789}}
		must(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), times, unix.AT_SYMLINK_NOFOLLOW))
	}
	return dir
}

// seen is what both sides must have in common.
type seen struct {
	Mode, Nlink   uint32
	Size, Mtime   int64
	Sparse        bool
	Target, Bytes string
	Xattrs        map[string]string
}

func look(t *testing.T, dir string) map[string]seen {
	t.Helper()
	all := map[string]seen{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		s := seen{Mode: st.Mode, Xattrs: map[string]string{}}
		if rel != "." {
			s.Mtime = st.Mtim.Nano()
		}
		switch KindOf(st.Mode) {
		case Symlink:
			s.Target, err = os.Readlink(path)
		case File:
			s.Nlink, s.Size, s.Sparse = uint32(st.Nlink), st.Size, st.Blocks*512 < st.Size
			if st.Size < 1<<30 {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				s.Bytes = string(b)
			}
		}
		if k := KindOf(st.Mode); k == File || k == Dir {
			buf := make([]byte, 4096)
			n, _ := unix.Listxattr(path, buf)
			for name := range strings.SplitSeq(strings.Trim(string(buf[:n]), "\x00"), "\x00") {
				if Carries(name) {
					v := make([]byte, 4096)
					n, _ := unix.Getxattr(path, name, v)
					s.Xattrs[name] = string(v[:n])
				}
			}
		}
		all[rel] = s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func pack(t *testing.T, dir string, opt Options) ([]byte, Report) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Totals{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := Pack(context.Background(), dir, w, opt)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), report
}

func unpack(t *testing.T, b []byte, dir string, opt Options) (Report, error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return Report{}, err
	}
	return Unpack(context.Background(), r, dir, opt)
}

func TestRoundTrip(t *testing.T) {
	from, to := plant(t), filepath.Join(t.TempDir(), "new")
	b, sent := pack(t, from, Options{Devices: true, SetID: true})
	if len(b) > 8<<20 {
		t.Errorf("the parcel has %d bytes: holes were sent", len(b))
	}
	for range 2 { // the second replaces what the first left
		report, err := unpack(t, b, to, Options{Devices: true, SetID: true, Owner: true})
		if err != nil {
			t.Fatal(err)
		}
		if report.Totals != sent.Totals {
			t.Errorf("%+v arrived of %+v", report.Totals, sent.Totals)
		}
		want := look(t, from)
		top := want["."]
		top.Mode = look(t, to)["."].Mode // keeps its own
		want["."] = top
		if diff := cmp.Diff(want, look(t, to)); diff != "" {
			t.Fatal(diff)
		}
	}
	one, _ := os.Stat(filepath.Join(to, "a/plain"))
	two, _ := os.Stat(filepath.Join(to, "a/b/second"))
	if !os.SameFile(one, two) {
		t.Error("a hard link became a copy")
	}
}

func TestZeroOptions(t *testing.T) {
	from, to := plant(t), t.TempDir()
	all, _ := pack(t, from, Options{Devices: true, SetID: true})
	few, sent := pack(t, from, Options{})
	if sent.Devices != 1 || len(sent.LeftOut) != 1 || !strings.HasSuffix(sent.LeftOut[0], "/null") {
		t.Errorf("left out %+v", sent)
	}
	for _, b := range [][]byte{few, all} { // both sides look after it
		report, err := unpack(t, b, to, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(to, "null")); err == nil {
			t.Error("a device node came")
		}
		if info, err := os.Stat(filepath.Join(to, "a/program")); err != nil || info.Mode() != 0o755 {
			t.Errorf("the program is %v, %v", info.Mode(), err)
		}
		if len(b) == len(all) && report.Devices != 1 {
			t.Errorf("report %+v", report)
		}
	}
}

// hand builds a parcel that Pack would not write.
func hand(t *testing.T, build func(w *Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Totals{})
	if err != nil {
		t.Fatal(err)
	}
	build(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostile unpacks streams that try to write outside the directory.
func TestHostile(t *testing.T) {
	top, up := &Entry{Kind: Dir, Mode: 0o755}, func(w *Writer) { w.Up() }
	outside := t.TempDir()
	for name, build := range map[string]func(w *Writer){
		"dotdot":       func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: ".."}); up(w) },
		"slash":        func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: "../x"}); up(w) },
		"absolute":     func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: outside + "/x"}); up(w) },
		"no name":      func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File}); up(w) },
		"nul":          func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: "a\x00b"}); up(w) },
		"long":         func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: strings.Repeat("n", 256)}); up(w) },
		"no directory": func(w *Writer) { w.Entry(&Entry{Kind: File, Name: "x"}) },
		"up and out":   func(w *Writer) { w.Entry(top); up(w); up(w) },
		"after the top": func(w *Writer) {
			w.Entry(top)
			up(w)
			w.Entry(&Entry{Kind: File, Name: "x"})
		},
		"through a link": func(w *Writer) {
			w.Entry(top)
			w.Entry(&Entry{Kind: Symlink, Name: "d", Mode: 0o777, Target: outside})
			w.Entry(&Entry{Kind: Dir, Name: "d", Mode: 0o755})
			w.Entry(&Entry{Kind: File, Name: "x"})
			up(w)
			up(w)
		},
		"link to what did not come": func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: Link, Name: "l", ID: 7}); up(w) },
		"mode":                      func(w *Writer) { w.Entry(top); w.Entry(&Entry{Kind: File, Name: "x", Mode: 1 << 20}); up(w) },
		"bytes behind the end": func(w *Writer) {
			w.Entry(top)
			w.Entry(&Entry{Kind: File, Name: "x", Size: 1})
			w.Data(0, []byte("ab"))
			up(w)
		},
		"bytes of a directory": func(w *Writer) { w.Entry(top); w.Data(0, []byte("ab")); up(w) },
		"bytes twice": func(w *Writer) {
			w.Entry(top)
			w.Entry(&Entry{Kind: File, Name: "x", Size: 4})
			w.Data(0, []byte("abcd"))
			w.Data(0, []byte("abcd"))
			up(w)
		},
		"trusted attribute": func(w *Writer) {
			w.Entry(top)
			w.Entry(&Entry{Kind: File, Name: "x", Xattrs: []Xattr{{"security.capability", []byte("x")}}})
			up(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := unpack(t, hand(t, build), filepath.Join(t.TempDir(), "in"), Options{}); err == nil {
				t.Error("it was taken")
			}
			if left, _ := os.ReadDir(outside); len(left) != 0 {
				t.Errorf("it wrote outside: %v", left)
			}
		})
	}
}

// TestUnpackReplacesLinks writes over a directory in which links were planted.
func TestUnpackReplacesLinks(t *testing.T) {
	outside, dir := filepath.Join(t.TempDir(), "outside"), t.TempDir()
	if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	b := hand(t, func(w *Writer) {
		w.Entry(&Entry{Kind: Dir, Mode: 0o755})
		w.Entry(&Entry{Kind: File, Name: "x", Mode: 0o644, Size: 3})
		w.Data(0, []byte("new"))
		w.Up()
	})
	if _, err := unpack(t, b, dir, Options{}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{outside: "safe", filepath.Join(dir, "x"): "new"} {
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
}

// TestCutOff ends a parcel early, at every frame and inside of some.
func TestCutOff(t *testing.T) {
	whole := hand(t, func(w *Writer) {
		w.Entry(&Entry{Kind: Dir, Mode: 0o755})
		w.Entry(&Entry{Kind: File, Name: "x", Mode: 0o644, Size: 3})
		w.Data(0, []byte("new"))
		w.Up()
	})
	for n := range len(whole) {
		if _, err := unpack(t, whole[:n], filepath.Join(t.TempDir(), "in"), Options{}); !errors.Is(err, ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	for n := range 8 { // an end that counts otherwise
		wrong := bytes.Clone(whole)
		at := len(wrong) - 16 + n
		wrong[at]++
		if _, err := unpack(t, wrong, filepath.Join(t.TempDir(), "in"), Options{}); !errors.Is(err, ErrFormat) {
			t.Errorf("an end that counts otherwise: %v", err)
		}
	}
}

// FuzzReader gives the decoder any bytes: it must end, with bounded memory,
// and never yield what check forbids.
func FuzzReader(f *testing.F) {
	var out bytes.Buffer
	w, _ := NewWriter(&out, Totals{3, 3})
	w.Entry(&Entry{Kind: Dir, Mode: 0o755})
	w.Entry(&Entry{Kind: File, Name: "x", Mode: 0o644, Size: 3, Xattrs: []Xattr{{"user.a", []byte("b")}}})
	w.Data(0, []byte("new"))
	w.Entry(&Entry{Kind: Symlink, Name: "l", Mode: 0o777, Target: "x"})
	w.Up()
	w.Close()
	f.Add(out.Bytes())
	f.Add(binary.LittleEndian.AppendUint32([]byte(magic+"\x02"), 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		for depth := 0; ; {
			event, err := r.Next()
			if err != nil || event == End {
				if err == io.EOF {
					t.Error("a bare io.EOF")
				}
				return
			}
			e := r.Entry
			switch event {
			case Entered:
				if depth > 0 && !validName(e.Name) || e.check() != nil {
					t.Errorf("let through %+v", e)
				}
				if e.Kind == Dir {
					depth++
				}
			case Up:
				depth--
			case Bytes:
				if r.Off+int64(len(r.Data)) > e.Size {
					t.Errorf("%d bytes at %d of %d", len(r.Data), r.Off, e.Size)
				}
			}
		}
	})
}
