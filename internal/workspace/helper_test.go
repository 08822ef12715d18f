package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// fixture is a workspace under test, and paths for it.
type fixture struct {
	*testing.T
	w   *Workspace
	t   *Tree
	dir string
	opt Options
	c   Caller
}

func newFixture(t *testing.T, opt Options) *fixture {
	t.Helper()
	f := &fixture{T: t, dir: filepath.Join(t.TempDir(), "ws"), opt: opt, c: Caller{UID: 1000, GID: 1000}}
	if testing.Verbose() && opt.Log == nil {
		f.opt.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w, err := Create(f.dir, f.opt)
	if err != nil {
		t.Fatal(err)
	}
	f.w, f.t = w, w.Tree()
	f.closes()
	return f
}

// closes checks and closes the workspace at the end of the test.
func (f *fixture) closes() {
	f.Cleanup(func() {
		if f.w != nil {
			f.check()
			if err := f.w.Close(); err != nil {
				f.Error(err)
			}
		}
	})
}

// check ends every test: the public check must be clean.
func (f *fixture) check() {
	f.Helper()
	report, err := f.w.Check(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range report.Problems {
		f.Error("check: ", p)
	}
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if n := f.heldValues(); n != f.t.inodes.values {
		f.Errorf("%d bytes of values are cached, but %d are counted", n, f.t.inodes.values)
	}
}

// heldValues counts what the cached inodes hold of xattrs and targets, bytes; under mu.
func (f *fixture) heldValues() (n int) {
	for _, in := range f.t.inodes.ring {
		if in.extra == nil {
			continue
		}
		n += len(in.extra.target)
		for name, x := range in.extra.xattrs {
			n += x.held(name)
		}
	}
	return n
}

// abandon ends the workspace as kill -9 does: nothing is flushed.
func (f *fixture) abandon() {
	f.Helper()
	f.w.cancel()
	f.w.done.Wait()
	f.t.mu.Lock()
	f.t.closed = true
	f.t.flushed.Broadcast()
	f.t.mu.Unlock()
	if err := errors.Join(f.t.index.close(), f.t.journal.Close(), f.w.lock.Close()); err != nil {
		f.Fatal(err)
	}
	f.w = nil
}

func (f *fixture) open() {
	f.Helper()
	w, err := Open(f.dir, f.opt)
	if err != nil {
		f.Fatal(err)
	}
	f.w, f.t = w, w.Tree()
}

func (f *fixture) reopen() {
	f.Helper()
	if err := f.w.Close(); err != nil {
		f.Fatal(err)
	}
	f.open()
}

func (f *fixture) kill() {
	f.abandon()
	f.open()
}

// walk resolves a path to the parent's inode and the last name.
func (f *fixture) walk(path string) (Ino, string) {
	f.Helper()
	dir := Root
	parts := strings.Split(path, "/")
	for _, name := range parts[:len(parts)-1] {
		a, err := f.t.Lookup(Caller{}, dir, name)
		if err != nil {
			f.Fatalf("%s: %s: %v", path, name, err)
		}
		dir = a.Ino
	}
	return dir, parts[len(parts)-1]
}

func (f *fixture) stat(path string) (Attr, error) {
	f.Helper()
	if path == "" {
		return f.t.GetAttr(Root)
	}
	dir, name := f.walk(path)
	return f.t.Lookup(Caller{}, dir, name)
}

func (f *fixture) must(path string) Attr {
	f.Helper()
	a, err := f.stat(path)
	if err != nil {
		f.Fatalf("stat %s: %v", path, err)
	}
	return a
}

func (f *fixture) mkdir(path string) Attr {
	f.Helper()
	dir, name := f.walk(path)
	a, err := f.t.Mkdir(f.c, dir, name, 0o755)
	if err != nil {
		f.Fatalf("mkdir %s: %v", path, err)
	}
	return a
}

// put makes or truncates a file and writes it.
func (f *fixture) put(path, content string) Attr {
	f.Helper()
	dir, name := f.walk(path)
	a, err := f.t.Create(f.c, dir, name, 0o644)
	if err == syscall.EEXIST {
		if a, err = f.t.Lookup(Caller{}, dir, name); err == nil {
			a, err = f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize})
		}
	}
	if err == nil && content != "" {
		_, err = f.t.Write(f.c, a.Ino, 0, []byte(content))
	}
	if err != nil {
		f.Fatalf("put %s: %v", path, err)
	}
	return f.must(path)
}

func (f *fixture) get(path string) string {
	f.Helper()
	return f.read(f.must(path).Ino)
}

func (f *fixture) read(ino Ino) string {
	f.Helper()
	a, err := f.t.GetAttr(ino)
	if err != nil {
		f.Fatal(err)
	}
	p := make([]byte, a.Size+10)
	n, err := f.t.Read(ino, 0, p)
	if err != nil || int64(n) != a.Size {
		f.Fatalf("read %d: %d of %d bytes: %v", ino, n, a.Size, err)
	}
	return string(p[:n])
}

func (f *fixture) rename(from, to string, flags uint32) error {
	f.Helper()
	d1, n1 := f.walk(from)
	d2, n2 := f.walk(to)
	return f.t.Rename(f.c, d1, n1, d2, n2, flags)
}

func (f *fixture) unlink(path string) error {
	f.Helper()
	d, n := f.walk(path)
	return f.t.Unlink(f.c, d, n)
}

func (f *fixture) rmdir(path string) error {
	f.Helper()
	d, n := f.walk(path)
	return f.t.Rmdir(f.c, d, n)
}

func (f *fixture) want(err, want error) {
	f.Helper()
	if err != want {
		f.Fatalf("got %v, want %v", err, want)
	}
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// list returns the names in a directory, in cookie order, read in pieces.
func (f *fixture) list(path string) []string {
	f.Helper()
	ino := f.must(path).Ino
	var names []string
	cookie := uint64(0)
	for {
		n := 0
		err := f.t.ReadDir(Caller{}, ino, cookie, len(names)%2 == 0, func(e DirEntry) bool {
			if n == 7 {
				return false
			}
			n++
			cookie = e.Cookie
			names = append(names, e.Name)
			return true
		})
		if err != nil {
			f.Fatal(err)
		}
		if n == 0 {
			return names[2:]
		}
	}
}

// dump describes the whole tree: what recovery must bring back.
func (f *fixture) dump() string {
	f.Helper()
	var b bytes.Buffer
	f.dumpDir(&b, "", Root)
	return b.String()
}

func (f *fixture) dumpDir(b *bytes.Buffer, path string, ino Ino) {
	f.Helper()
	a, err := f.t.GetAttr(ino)
	if err != nil {
		f.Fatal(err)
	}
	fmt.Fprintf(b, "%q %+v", path, a)
	names, err := f.t.ListXattr(ino)
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range names {
		v, _ := f.t.GetXattr(ino, n)
		fmt.Fprintf(b, " %s=%q", n, v)
	}
	switch a.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		fmt.Fprintf(b, " %q", f.read(ino))
	case syscall.S_IFLNK:
		target, _ := f.t.Readlink(ino)
		fmt.Fprintf(b, " -> %q", target)
	}
	b.WriteByte('\n')
	if !a.IsDir() {
		return
	}
	var entries []DirEntry
	if err := f.t.ReadDir(Caller{}, ino, 2, false, func(e DirEntry) bool { entries = append(entries, e); return true }); err != nil {
		f.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		f.dumpDir(b, path+"/"+e.Name, e.Ino)
	}
}

// sql returns the rows of a query, joined.
func (f *fixture) sql(query string) []string {
	f.Helper()
	res, err := f.w.Query(context.Background(), query, Limits{})
	if err != nil {
		f.Fatal(err)
	}
	var out []string
	for _, row := range res.Rows {
		out = append(out, strings.Trim(fmt.Sprint(row...), "[]"))
	}
	return out
}
