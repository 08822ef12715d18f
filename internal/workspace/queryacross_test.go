package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
)

// across asks several workspaces, named by their order from a on.
func across(t *testing.T, sql string, all ...*fixture) string {
	t.Helper()
	var asked []QuerySource
	for i, f := range all {
		asked = append(asked, QuerySource{W: f.w, Name: string(rune('a' + i))})
	}
	r, err := QueryAcross(t.Context(), asked, sql, Limits{})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return lines(r)
}

func (f *fixture) ask(q QuerySource, sql string) string {
	f.Helper()
	q.W = f.w
	r, err := q.Query(f.Context(), sql, Limits{})
	if err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return lines(r)
}

// TestQueriesOfRandomTrees lets things happen between checkpoints, and wants of
// SQL what the diff and the present of then said. A failure prints the seed.
func TestQueriesOfRandomTrees(t *testing.T) {
	rounds, seed := 1, uint64(time.Now().UnixNano())
	if os.Getenv("HOLT_SOAK") != "" {
		rounds = 200
	}
	for i := range rounds {
		queryRound(t, seed+uint64(i))
	}
}

func queryRound(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	const files = "SELECT " + filesColumns + " FROM files ORDER BY path"
	const tags = "SELECT path, name, value FROM tags ORDER BY path, name"
	f := newFixture(t, Options{})
	s := scribe{f, rand.New(rand.NewPCG(seed, 1)), ""}
	states := map[string]string{}
	points := []string{Live}
	for n := range 5 {
		s.c.Writer = Writer{Kind: "run", Name: "agent", Run: fmt.Sprint("run_", n)}
		for range 8 {
			s.step()
		}
		c, err := f.w.Checkpoint(CheckpointOptions{Name: fmt.Sprint("it's ", n)})
		f.ok(err)
		points = append(points, c.Name)
		states[c.Name] = f.ask(QuerySource{}, files) + f.ask(QuerySource{}, tags)
		if n == 3 {
			_, err := f.w.Restore(t.Context(), s.c, points[1+s.rng.IntN(3)], RestoreOptions{})
			f.ok(err)
		}
	}
	s.step()
	for at, want := range states {
		if got := f.ask(QuerySource{At: at}, files) + f.ask(QuerySource{At: at}, tags); got != want {
			t.Errorf("seed %d: at %s\n%s\nwant\n%s", seed, at, got, want)
		}
	}
	for _, from := range points {
		for _, to := range points[:1+s.rng.IntN(3)] {
			f.sameChanges(from, to)
			f.sameChanges(to, from)
		}
	}
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

// sameChanges compares a diff with the table of changes, alone and among others.
func (f *fixture) sameChanges(from, to string) {
	f.Helper()
	var want strings.Builder
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	bit := map[bool]int{true: 1}
	err := History{W: f.w}.Diff(f.Context(), holt.DiffSpec{From: from, To: to}, func(c holt.Change) error {
		fmt.Fprintf(&want, "%v|%v|%v|%v|%v|%v|%v|%v|%v|%v|%v|%v\n", c.Path, c.Kind, c.Type, null(string(c.From)), bit[c.Content], bit[c.Metadata],
			c.SizeBefore, c.SizeAfter, null(c.By.Name), null(c.By.Kind), null(c.By.Run), null(c.By.Terminal))
		return nil
	})
	f.ok(err)
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	sql := "SELECT path, kind, type, old_path, content, metadata, size_before, size_after, writer, writer_kind, run, terminal FROM changes(" + quote(from) + ", " + quote(to) + ")"
	if got := f.ask(QuerySource{}, sql); got != want.String() {
		f.Errorf("changes from %s to %s\n%s\nwant\n%s", from, to, got, want.String())
	}
	if got := across(f.T, sql, f); got != want.String() {
		f.Errorf("across, changes from %s to %s\n%s\nwant\n%s", from, to, got, want.String())
	}
}

// TestChangesAsATable asks in ways that a diff does not.
func TestChangesAsATable(t *testing.T) {
	f := newFixture(t, Options{})
	_, err := f.w.Query(t.Context(), "SELECT * FROM changes", Limits{})
	if holt.CodeOf(err) != holt.NotFound || !strings.Contains(holt.AsError(err).Hint, "take one") {
		t.Fatalf("no checkpoint to compare with: %v", err)
	}
	f.put("a", "1")
	f.checkpoint("one")
	f.put("a", "22")
	f.put("b", "1")
	f.checkpoint("two")
	f.ok(f.unlink("b"))
	for sql, want := range map[string]string{
		"SELECT kind, path FROM changes":                                    "deleted|/b\n",
		"SELECT kind, path, dir, name FROM changes('one')":                  "changed|/a|/|a\n",
		"SELECT kind, path FROM changes('#1', 'two')":                       "created|/b\nchanged|/a\n",
		"SELECT kind FROM changes('two', 'one') ORDER BY 1":                 "changed\ndeleted\n",
		"SELECT DISTINCT from_checkpoint, to_checkpoint FROM changes":       "two|live\n",
		"SELECT path FROM changes WHERE from_checkpoint = 'one'":            "/a\n",
		"SELECT path FROM changes(NULL, NULL)":                              "/b\n",
		"SELECT count(*) FROM changes('one') x, changes('one') y":           "1\n",
		"SELECT path FROM changes('one') WHERE from_checkpoint = 'two'":     "",
		"SELECT c.name, x.path FROM checkpoint c, changes(c.name) x":        "one|/a\ntwo|/b\n",
		"SELECT f.path, f.size FROM changes('one') JOIN files f USING(ino)": "/a|2\n",
	} {
		if got := f.ask(QuerySource{}, sql); got != want {
			t.Errorf("%s\n got %q\nwant %q", sql, got, want)
		}
	}
	for sql, code := range map[string]holt.Code{
		"SELECT * FROM changes('none')":                    holt.NotFound,
		"SELECT * FROM changes('one', '#77')":              holt.NotFound,
		"SELECT * FROM changes('one', 'two', 'three')":     holt.InvalidArgument,
		"INSERT INTO changes(path) VALUES ('x')":           holt.InvalidArgument,
		"SELECT * FROM checkpoint c, changes(c.name||'x')": holt.NotFound,
	} {
		if _, err := f.w.Query(t.Context(), sql, Limits{}); holt.CodeOf(err) != code {
			t.Errorf("%s: %v", sql, err)
		}
		if _, err := QueryAcross(t.Context(), []QuerySource{{W: f.w, Name: "a"}}, sql, Limits{}); holt.CodeOf(err) != code {
			t.Errorf("across, %s: %v", sql, err)
		}
	}
	if _, err := (QuerySource{W: f.w, At: "none"}).Query(t.Context(), "SELECT 1", Limits{}); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
}

// TestQueryAcross asks forks what people ask of them.
func TestQueryAcross(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("src")
	f.mkdir("src/node_modules")
	f.put("src/node_modules/x", "12345")
	f.put("src/main.go", "package main")
	f.put("same", "same")
	f.ok(f.t.SetXattr(f.c, f.must("same").Ino, "user.note", []byte("hi"), 0))
	f.checkpoint("start")
	one, two := f.fork(ForkOptions{}), f.fork(ForkOptions{})
	one.put("src/node_modules/y", strings.Repeat("y", 1000))
	two.put("src/main.go", "package two!")
	two.ok(two.unlink("same"))
	for sql, want := range map[string]string{
		"SELECT workspace, sum(size) FROM files WHERE path LIKE '%/node_modules/%' GROUP BY 1 ORDER BY 2 DESC, 1": "b|1005\na|5\nc|5\n",
		"SELECT workspace, path FROM files WHERE name = 'same' ORDER BY 1":                                        "a|/same\nb|/same\n",
		"SELECT count(*) FROM files WHERE workspace = 'c'":                                                        "4\n",
		"SELECT count(*) FROM files WHERE workspace IN ('a', 'c')":                                                "9\n",
		"SELECT count(*) FROM files WHERE workspace = 'a' AND workspace = 'c'":                                    "0\n",
		"SELECT count(*) FROM files WHERE workspace = 'none'":                                                     "0\n",
		"SELECT workspace, name, value FROM tags ORDER BY 1":                                                      "a|note|hi\nb|note|hi\n",
		"SELECT workspace, kind, path FROM changes('start') ORDER BY 1":                                           "b|created|/src/node_modules/y\nc|deleted|/same\nc|changed|/src/main.go\n",
		"SELECT workspace, path FROM files_at WHERE checkpoint = 'start' AND path = '/same' ORDER BY 1":           "a|/same\nb|/same\nc|/same\n",
		"SELECT path FROM files_at WHERE checkpoint = 'start' AND path = '/src/main.go'":                          "/src/main.go\n/src/main.go\n/src/main.go\n",
		"SELECT c.path FROM files c LEFT JOIN files a ON a.workspace = 'a' AND a.path = c.path WHERE c.workspace = 'c' AND (a.path IS NULL OR a.mtime <> c.mtime OR a.size <> c.size) AND c.kind = 'file'": "/src/main.go\n",
		"SELECT a.path FROM files a WHERE a.workspace = 'a' AND NOT EXISTS (SELECT 1 FROM files c WHERE c.workspace = 'c' AND c.path = a.path)":                                                            "/same\n",
		"SELECT count(DISTINCT workspace) FROM checkpoints WHERE name = 'start'":                                                                                                                           "3\n",
		"SELECT workspace, count(*) FROM entry GROUP BY 1":                                                                                                                                                 "a|5\nb|6\nc|4\n",
	} {
		if got := across(t, sql, f, one, two); got != want {
			t.Errorf("%s\n got %q\nwant %q", sql, got, want)
		}
	}
	one.checkpoint("after")
	r, err := QueryAcross(t.Context(), []QuerySource{{W: one.w, Name: "now"}, {W: one.w, Name: "then", At: "start"}},
		"SELECT workspace, count(*) FROM files GROUP BY 1", Limits{})
	if err != nil || lines(r) != "now|6\nthen|5\n" {
		t.Fatal(err, r)
	}
}

// TestAcrossIsTheSame asks one workspace alone and as one of several: terms and
// types mean the same.
func TestAcrossIsTheSame(t *testing.T) {
	f := newFixture(t, Options{})
	s := scribe{f, rand.New(rand.NewPCG(1, 1)), ""}
	for range 30 {
		s.step()
	}
	f.put("a b", "12")
	f.put("bad\xff", "1")
	for _, where := range []string{"1", "size > 3", "size > '3'", "size = 2", "size = '2'", "path = '/a b'", "path > '/b'", "path LIKE '/A%'", "path GLOB '/a*'",
		"name = 'b'", "name = 5", "name COLLATE NOCASE = 'B'", "mtime > '2026-01-01'", "mtime > 5", "mtime < 'x' AND kind = 'dir'", "ino = 2", "ino = '2'", "ino = 2.0", "ino > 3.5",
		"run IS NULL", "run = NULL", "run IS NOT NULL", "writer = 'agent'", "uid = 1000", "uid = '1000'", "mtime_ns > 1e9", "kind IN ('dir', 'symlink')", "nlink BETWEEN 2 AND 5",
		"path = '/bad' || CAST(x'ff' AS TEXT)", "path = x'2f61'", "mode = '0644'", "mode = 0644", "path = '/'", "path = ''", "path = 'a'", "NOT size", "size IN (SELECT max(size) FROM files)",
		"dir = '/' AND name = 'a' OR size = 0", "ino = 2 OR ino > 1 AND path > '' OR path LIKE '%'"} {
		sql := "SELECT " + filesColumns + " FROM files WHERE " + where + " ORDER BY path, ino"
		if alone, among := f.ask(QuerySource{}, sql), across(t, sql, f); alone != among {
			t.Errorf("%s\nalone %s\namong %s", sql, alone, among)
		}
	}
	f.ok(f.unlink("bad\xff"))
}

// TestQueryPlans wants indexes for what people ask.
func TestQueryPlans(t *testing.T) {
	f := newFixture(t, Options{})
	f.checkpoint("one")
	for sql, want := range map[string]string{
		"SELECT path FROM files WHERE mtime > '2026-06-09'":                                                                          "SEARCH i USING INDEX inode_mtime",
		"SELECT dir, sum(size) FROM files GROUP BY dir ORDER BY 2 DESC":                                                              "SCAN d USING COVERING INDEX dir_path|SEARCH e USING PRIMARY KEY (parent=?)|SEARCH i USING INTEGER PRIMARY KEY (rowid=?)",
		"SELECT path FROM files WHERE dir = '/src'":                                                                                  "SEARCH d USING COVERING INDEX dir_path (path=?)|SEARCH e USING PRIMARY KEY (parent=?)",
		"SELECT path FROM files ORDER BY mtime DESC LIMIT 10":                                                                        "SCAN i USING INDEX inode_mtime",
		"SELECT 1 FROM (SELECT key AS this, value AS last FROM json_each('{}')) CROSS JOIN entry ON parent = this AND cookie > last": "INDEX entry_cookie (parent=? AND cookie>?)",
		"SELECT path FROM files WHERE writer = 'agent' AND mtime > date('now','-7 days')":                                            "SEARCH i USING INDEX inode_mtime",
		"SELECT path FROM tags WHERE name = 'urgent'":                                                                                "SEARCH x USING COVERING INDEX xattr_tag (<expr>=?)|SEARCH e USING COVERING INDEX entry_ino (ino=?)",
		"SELECT path FROM files_at WHERE checkpoint = 'one'":                                                                         "SEARCH c USING INDEX sqlite_autoindex_checkpoint_1 (name=?)",
		"SELECT path FROM files WHERE path = '/a' " + strings.NewReplacer("$dir", "'/'", "$name", "'a'").Replace("AND "+pathKey):     "SEARCH i USING INTEGER PRIMARY KEY (rowid=?)|SEARCH e USING PRIMARY KEY (parent=? AND name=?)",
		"SELECT path FROM files_at WHERE path = '/a' " + strings.NewReplacer("$dir", "'/'", "$name", "'a'").Replace("AND "+pathKey):  "SEARCH e USING INDEX entry_ino (ino=?)|SEARCH main.past_dir USING COVERING INDEX past_dir_path",
	} {
		plan := f.ask(QuerySource{}, "EXPLAIN QUERY PLAN "+sql)
		for _, step := range strings.Split(want, "|") {
			if !strings.Contains(plan, step) {
				t.Errorf("%s does not %s:\n%s", sql, step, plan)
			}
		}
		if strings.Contains(plan, "FOR GROUP BY") {
			t.Errorf("%s is sorted:\n%s", sql, plan)
		}
	}
	plan := across(t, "EXPLAIN QUERY PLAN SELECT f.path FROM files f LEFT JOIN files p ON p.workspace = 'a' AND p.path = f.path WHERE f.workspace = 'b' AND p.path IS NULL", f, f)
	if strings.Contains(plan, "MATERIALIZE") || strings.Count(plan, "VIRTUAL TABLE INDEX") != 2 {
		t.Error(plan)
	}
}

// TestShellReadsTheIndex opens the index of a closed and of an open workspace
// in the sqlite3 shell.
func TestShellReadsTheIndex(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("a", "1")
	f.ok(f.t.SetXattr(f.c, f.must("a").Ino, "user.note", []byte("hi"), 0))
	f.checkpoint("one")
	f.put("b", "22")
	f.ok(f.w.Flush())
	shell := func() {
		t.Helper()
		const sql = "SELECT path, size FROM files ORDER BY 1; SELECT * FROM tags; SELECT path FROM files_at; SELECT * FROM tags_at; SELECT name, files FROM checkpoints; PRAGMA integrity_check;"
		out, err := exec.Command("sqlite3", "-readonly", filepath.Join(f.dir, "index.db"), sql).CombinedOutput()
		if want := "/a|1\n/b|2\n/a|note|hi\n/a\none|/a|note|hi\none|1\nok\n"; err != nil || string(out) != want {
			t.Fatalf("%v\n%s\nwant\n%s", err, out, want)
		}
	}
	shell()
	f.ok(f.w.Close())
	shell()
	f.open()
}

// TestHostileQueries wants each to end with an error that says what to do.
func TestHostileQueries(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("a", "1")
	f.checkpoint("one")
	f.put("b", "1")
	secret := filepath.Join(t.TempDir(), "secret.db")
	f.ok(os.WriteFile(secret, nil, 0o600))
	repeat := func(s string, n int) string { return strings.Repeat(s+", ", n) + "1" }
	for _, sql := range []string{
		"ATTACH '" + secret + "' AS s", "PRAGMA journal_mode = DELETE", "PRAGMA query_only = 0", "SELECT load_extension('x')", "SELECT * FROM pragma_database_list",
		"DELETE FROM files", "CREATE TEMP VIEW files AS SELECT 1", "CREATE TABLE x(y)", "BEGIN", "COMMIT", "ROLLBACK", "DROP TABLE changes", "VACUUM INTO '" + secret + "2'",
		"CREATE VIRTUAL TABLE temp.x USING files", "SELECT writefile('" + secret + "', 'x')", "SELECT readfile('/etc/passwd')", "SELECT * FROM fsdir('/')",
		"SELECT " + repeat("length(hex(zeroblob(100000)))", 1900), "SELECT hex(zeroblob(1000000))", "SELECT max(" + repeat("hex(zeroblob(100000))", 900) + ")",
		"SELECT " + repeat("1", 300), "SELECT '" + strings.Repeat("x", 200_000) + "'", "SELECT 'a' LIKE '" + strings.Repeat("%a", 2000) + "'",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 100) SELECT group_concat(hex(zeroblob(10000))) FROM n",
		strings.Repeat("SELECT * FROM files UNION ALL ", 600) + "SELECT * FROM files",
	} {
		for name, ask := range map[string]func() (holt.QueryResult, error){
			"alone": func() (holt.QueryResult, error) { return f.w.Query(t.Context(), sql, Limits{}) },
			"at": func() (holt.QueryResult, error) {
				return QuerySource{W: f.w, At: "one"}.Query(t.Context(), sql, Limits{})
			},
			"among": func() (holt.QueryResult, error) {
				return QueryAcross(t.Context(), []QuerySource{{W: f.w, Name: "a"}, {W: f.w, Name: "b"}}, sql, Limits{})
			},
		} {
			_, err := ask()
			if e := holt.AsError(err); err == nil || e.Code != holt.InvalidArgument || e.Hint == "" {
				t.Errorf("%s: %.100s: %v", name, sql, err)
			}
		}
	}
	if info, err := os.Stat(secret); err != nil || info.Size() != 0 {
		t.Error("a query wrote", err)
	}
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
	for _, sql := range []string{endless, endless + ", files, changes('one')", "SELECT count(*) FROM changes('one') WHERE (" + endless + ") > 0"} {
		_, err := QueryAcross(t.Context(), []QuerySource{{W: f.w, Name: "a"}}, sql, Limits{Time: 20 * time.Millisecond})
		if holt.CodeOf(err) != holt.Timeout {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// TestQueryBesideWriters changes, checkpoints and forks a workspace while a
// query that never ends reads it, and wants queries to see no half of a restore.
func TestQueryBesideWriters(t *testing.T) {
	f := newFixture(t, Options{FlushOps: 10})
	ctx, cancel := context.WithCancel(t.Context())
	began, done := make(chan struct{}), make(chan error)
	go func() {
		close(began)
		_, err := QueryAcross(ctx, []QuerySource{{W: f.w, Name: "a"}},
			"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n, files", Limits{Time: time.Hour})
		done <- err
	}()
	<-began
	f.checkpoint("none")
	const files = 30
	for i := range files {
		f.put(fmt.Sprint("f", i), "x")
	}
	f.checkpoint("all")
	child := f.fork(ForkOptions{})
	stop := make(chan struct{})
	seen := make(chan error, 1)
	go func() {
		defer close(seen)
		for {
			select {
			case <-stop:
				return
			default:
			}
			r, err := QueryAcross(t.Context(), []QuerySource{{W: f.w, Name: "a"}, {W: child.w, Name: "b"}},
				"SELECT (SELECT count(*) FROM files WHERE workspace = 'a'), (SELECT count(*) FROM changes('none') WHERE workspace = 'a'), count(*) FROM files WHERE workspace = 'b'", Limits{Time: time.Hour})
			if got := lines(r); err != nil || !slices.Contains([]string{"0|0|30\n", "30|30|30\n"}, got) {
				seen <- fmt.Errorf("half a restore: %s, %v", got, err)
				return
			}
		}
	}()
	for i := range 8 {
		_, err := f.w.Restore(t.Context(), f.c, []string{"none", "all"}[i%2], RestoreOptions{})
		f.ok(err)
	}
	close(stop)
	if err := <-seen; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; holt.CodeOf(err) != holt.Timeout {
		t.Error(err)
	}
}
