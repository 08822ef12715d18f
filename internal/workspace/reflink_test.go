package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"holt/internal/store/db"
)

// reflinks mounts a new file system whose files can share blocks (XFS), until
// the end of the test.
func reflinks(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "xfs"), filepath.Join(t.TempDir(), "mnt")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 512<<20); err != nil { // sparse
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", image}, {"mount", "-t", "xfs", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s (needs root, XFS in the kernel, and mkfs.xfs of the package xfsprogs)", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error("unmount:", err, unix.Unmount(dir, unix.MNT_DETACH))
		}
	})
	return dir
}

// sharedBytes counts the bytes of a file that lie in blocks of another one too.
func sharedBytes(t *testing.T, path string) (n int64) {
	t.Helper()
	out, err := exec.Command("filefrag", "-v", "-b1", path).CombinedOutput()
	if err != nil {
		t.Fatalf("filefrag: %v: %s (of the package e2fsprogs)", err, out)
	}
	for line := range strings.Lines(string(out)) {
		// ext: logical from.. to: physical from.. to: length: expected: flags
		f := strings.FieldsFunc(line, func(r rune) bool { return r == ':' || r == ' ' || r == '.' || r == '\n' })
		if len(f) > 6 && strings.Contains(f[len(f)-1], "shared") {
			var length int64
			if _, err := fmt.Sscan(f[5], &length); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			n += length
		}
	}
	return n
}

// Where files can share blocks, a fork's index takes none of its own until one
// of the two changes, and then each has its own; elsewhere it is copied.
func TestForkSharesBlocks(t *testing.T) {
	if _, err := exec.LookPath("filefrag"); err != nil {
		t.Fatal("install the package e2fsprogs:", err)
	}
	mnt := reflinks(t)
	f := &fixture{T: t, dir: filepath.Join(mnt, "ws"), opt: quiet(Options{Disk: lazyDisk{}}), c: Caller{UID: 1000, GID: 1000}}
	w, err := Create(f.dir, f.opt)
	f.ok(err)
	f.w, f.t = w, w.Tree()
	f.closes()
	value := strings.Repeat("a tag that takes room in the index ", 1000)
	for i := range 100 {
		name := fmt.Sprint("file", i)
		f.put(name, name)
		f.ok(f.t.SetXattr(f.c, f.must(name).Ino, "user.note", []byte(value), 0))
	}
	f.reopen() // what is in SQLite's log is in the database then
	fi, err := os.Stat(filepath.Join(f.dir, "index.db"))
	f.ok(err)
	before := f.dump()
	dir := filepath.Join(mnt, "fork")
	_, err = f.w.Fork(t.Context(), dir, ForkOptions{Name: "ws", Child: "fork"})
	f.ok(err)
	if shared := sharedBytes(t, filepath.Join(dir, "index.db")); shared < fi.Size()*9/10 || fi.Size() < 1<<20 {
		t.Errorf("%d bytes of an index of %d are shared", shared, fi.Size())
	}
	g := f.child(dir)
	if d := cmp.Diff(before, g.dump()); d != "" {
		t.Fatal(d)
	}
	for i := range 100 {
		f.put(fmt.Sprint("file", i), "of the parent")
		g.put(fmt.Sprint("file", i), "of the child")
	}
	for _, side := range []*fixture{f, g} {
		side.reopen()
		side.check()
	}
	if f.get("file7") != "of the parent" || g.get("file99") != "of the child" {
		t.Error("one sees what the other wrote:", f.get("file7"), g.get("file99"))
	}
	// To another file system blocks cannot be shared: EXDEV.
	elsewhere := filepath.Join(t.TempDir(), "index.db")
	f.ok(f.t.index.db.Clone(t.Context(), elsewhere))
	c, err := db.Open(elsewhere, schema, views)
	f.ok(err)
	defer c.Close()
	f.ok(c.Read(context.Background(), func(tx *db.Tx) error {
		return tx.Query("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'", nil, func(r *db.Row) error {
			if r.Int64(0) != 0 {
				t.Error("the copy is damaged")
			}
			return nil
		})
	}))
}
