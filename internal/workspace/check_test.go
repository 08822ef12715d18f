package workspace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt/internal/store/db"
)

// damage is what a check must see: SQL that breaks the index, and words of the
// problem it must report.
var damage = []struct{ name, sql, want string }{
	{"lost inode", "DELETE FROM inode WHERE ino = (SELECT ino FROM entry WHERE name = CAST('a' AS BLOB))", "does not exist"},
	{"lost directory", "UPDATE entry SET parent = 999999 WHERE name = CAST('a' AS BLOB)", "is in no directory"},
	{"cookie", "UPDATE entry SET cookie = 1000000 WHERE name = CAST('a' AS BLOB)", "has given out"},
	{"links", "UPDATE inode SET nlink = 5 WHERE ino = (SELECT ino FROM entry WHERE name = CAST('a' AS BLOB))", "link count 5 but 1 names"},
	{"directory links", "UPDATE inode SET nlink = 9 WHERE ino = 1", "link count 9 but 1 subdirectories"},
	{"entries", "UPDATE inode SET size = 77 WHERE ino = 1", "says 77 entries"},
	{"two parents", "INSERT INTO entry SELECT ino, CAST('z' AS BLOB), ino, 1, born FROM entry WHERE name = CAST('sub' AS BLOB)", "has 2 names"},
	{"parent", "UPDATE inode SET parent = 7 WHERE ino = (SELECT ino FROM entry WHERE name = CAST('sub' AS BLOB))", "says its parent is 7"},
	{"path", "UPDATE dir SET path = '/elsewhere' WHERE path = '/sub'", "but its row says '/elsewhere'"},
	{"no path", "DELETE FROM dir WHERE path = '/sub'", "has no path"},
	{"stale path", "INSERT INTO dir VALUES (424242, '/ghost', 1)", "no directory in use"},
	{"extent of nothing", "UPDATE extent SET ino = 424242", "no regular file"},
	{"outside", "UPDATE extent SET delta = whole", "outside its record"},
	{"segment", "UPDATE extent SET segment = 99", "which is not known"},
	{"size", "UPDATE inode SET size = 1 WHERE size = 5000", "but bytes up to 5000"},
	{"allocation", "UPDATE inode SET alloc = 1 WHERE size = 5000", "says 1 bytes are allocated but has 5000"},
	{"attribute", "INSERT INTO xattr VALUES (424242, CAST('user.x' AS BLOB), CAST('' AS BLOB), 1)", "attribute"},
	{"writer", "UPDATE inode SET writer = 77 WHERE size = 5000", "who is not known"},
	{"orphan", "UPDATE inode SET nlink = 0 WHERE size = 5000", "has no name"},
	{"overlap", "INSERT INTO extent SELECT ino, off + 10, 10, segment, place, whole, delta, born FROM extent", "overlaps"},
}

// TestCheckSeesDamage breaks each invariant and wants it named.
func TestCheckSeesDamage(t *testing.T) {
	for _, d := range damage {
		t.Run(d.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ws")
			w := small(t, dir)
			defer w.Close()
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			err := w.tree.index.db.Write(context.Background(), func(tx *db.Tx) error { return tx.Exec(d.sql) })
			if err != nil {
				t.Fatal(err)
			}
			wantProblem(t, w, d.want)
		})
	}
}

// small makes a workspace with a file "a" of 5000 bytes and a directory "sub".
func small(t *testing.T, dir string) *Workspace {
	t.Helper()
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tree := w.Tree()
	a, err := tree.Create(Caller{}, Root, "a", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(Caller{}, a.Ino, 0, make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Mkdir(Caller{}, Root, "sub", 0o755); err != nil {
		t.Fatal(err)
	}
	report, err := w.Check(context.Background())
	if err != nil || len(report.Problems) > 0 || report.Bytes != 5000 {
		t.Fatalf("before the damage: %+v, %v", report, err)
	}
	return w
}

func wantProblem(t *testing.T, w *Workspace, want string) {
	t.Helper()
	report, err := w.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Problems, func(p string) bool { return strings.Contains(p, want) }) {
		t.Errorf("check does not say %q: %q", want, report.Problems)
	}
}

// TestCheckReadsBytes flips one bit of a file's content on disk.
func TestCheckReadsBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	w := small(t, dir)
	defer w.Close()
	segments, err := filepath.Glob(filepath.Join(dir, "journal", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var place int64
	err = w.tree.index.db.Read(context.Background(), func(tx *db.Tx) error {
		return tx.Query("SELECT place FROM extent", nil, func(r *db.Row) error { place = r.Int64(0); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, place+4321); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, w, "checksum mismatch")
}
