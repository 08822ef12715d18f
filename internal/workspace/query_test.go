package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// lines renders a result as lines of values joined with |.
func lines(r holt.QueryResult) string {
	var b strings.Builder
	for _, row := range r.Rows {
		for i, v := range row {
			if i > 0 {
				b.WriteByte('|')
			}
			fmt.Fprint(&b, v)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestQuestions asks the product's three questions, through Query and in the
// sqlite3 shell on the raw index.
func TestQuestions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	w := small(t, dir)
	defer w.Close()
	agent := Caller{UID: 1000, Writer: Writer{Kind: "run", Name: "agent", Run: "run_abcdefghijklmnop"}}
	tree := w.Tree()
	sub, err := tree.Lookup(Caller{}, Root, "sub")
	if err != nil {
		t.Fatal(err)
	}
	f, err := tree.Create(agent, sub.Ino, "notes with 'quotes'.md", 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(agent, f.Ino, 0, make([]byte, 7000)); err != nil {
		t.Fatal(err)
	}
	if err := tree.SetXattr(agent, f.Ino, "user.status", []byte("urgent"), 0); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		"SELECT path FROM files WHERE mtime > '2026-06-09' AND kind = 'file' ORDER BY 1":                             "/a\n/sub/notes with 'quotes'.md\n",
		"SELECT path FROM files WHERE mtime > '2999-01-01'":                                                          "",
		"SELECT dir, sum(size) FROM files GROUP BY dir ORDER BY 2 DESC":                                              "/sub|7000\n/|5000\n",
		"SELECT path, run FROM files WHERE writer = 'agent' AND kind = 'file' AND mtime > date('now','-7 days')":     "/sub/notes with 'quotes'.md|run_abcdefghijklmnop\n",
		"SELECT path, name, value FROM tags":                                                                         "/sub/notes with 'quotes'.md|status|urgent\n",
		"SELECT path, kind, mode, uid, nlink FROM files WHERE name LIKE 'notes%'":                                    "/sub/notes with 'quotes'.md|file|0640|1000|1\n",
		"SELECT count(*) FROM files WHERE abs(julianday('now') - julianday(mtime)) < 1 AND mtime_ns > 1000000000000": "3\n",
	} {
		r, err := w.Query(context.Background(), sql, Limits{})
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if got := lines(r); got != want {
			t.Errorf("%s\n got %q\nwant %q", sql, got, want)
		}
		shell := exec.Command("sqlite3", "-readonly", filepath.Join(dir, "index.db"), sql)
		out, err := shell.CombinedOutput()
		if err != nil || !bytes.Equal(out, []byte(want)) {
			t.Errorf("sqlite3: %s\n got %q, %v\nwant %q", sql, out, err, want)
		}
	}
}

// TestFilesAt asks what there was at checkpoints, through Query and in the
// sqlite3 shell.
func TestFilesAt(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("dir")
	f.put("dir/a", "old")
	f.put("b", "b")
	f.checkpoint("one")
	f.put("dir/a", "newer")
	f.ok(f.unlink("b"))
	f.ok(f.rename("dir", "moved", 0))
	f.checkpoint("two")
	f.ok(f.unlink("moved/a"))
	for sql, want := range map[string]string{
		"SELECT path, size FROM files_at WHERE checkpoint = 'one' ORDER BY 1":              "/b|1\n/dir|0\n/dir/a|3\n",
		"SELECT path, size FROM files_at WHERE checkpoint = 'two' AND kind = 'file'":       "/moved/a|5\n",
		"SELECT checkpoint, count(*) FROM files_at GROUP BY 1 ORDER BY 1":                  "one|3\ntwo|2\n",
		"SELECT path FROM files_at WHERE checkpoint = 'two' EXCEPT SELECT path FROM files": "/moved/a\n",
		"SELECT path FROM files_at WHERE checkpoint = 'none'":                              "",
	} {
		r, err := f.w.Query(context.Background(), sql, Limits{})
		f.ok(err)
		if got := lines(r); got != want {
			t.Errorf("%s\n got %q\nwant %q", sql, got, want)
		}
		out, err := exec.Command("sqlite3", "-readonly", filepath.Join(f.dir, "index.db"), sql).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("sqlite3: %s\n got %q, %v\nwant %q", sql, out, err, want)
		}
	}
	r, err := f.w.Query(context.Background(), "EXPLAIN QUERY PLAN SELECT path FROM files_at WHERE checkpoint = 'one' AND path = '/b'", Limits{})
	f.ok(err)
	if plan := lines(r); strings.Contains(plan, "SCAN p ") || strings.Contains(plan, "SCAN i ") || strings.Contains(plan, "MATERIALIZE") {
		t.Fatal(plan)
	}
}

// TestQuestionsUseIndexes wants the range and the writer to come from indexes.
func TestQuestionsUseIndexes(t *testing.T) {
	w := small(t, filepath.Join(t.TempDir(), "ws"))
	defer w.Close()
	for sql, want := range map[string]string{
		"SELECT path FROM files WHERE mtime > '2026-06-09'": "inode_mtime",
	} {
		r, err := w.Query(context.Background(), "EXPLAIN QUERY PLAN "+sql, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if plan := lines(r); !strings.Contains(plan, want) {
			t.Errorf("%s does not use %s:\n%s", sql, want, plan)
		}
	}
}
