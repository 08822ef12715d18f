package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

const testTables = "CREATE TABLE a(k INTEGER PRIMARY KEY, v); CREATE TABLE b(x);"

func openTest(t *testing.T) *DB {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "x.db"), testTables, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestModes: other users cannot read a database in any directory.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.db"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.db", "new.db"} {
		d, err := Open(filepath.Join(dir, name), "CREATE TABLE a(k)", "")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(filepath.Join(dir, name+suffix))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s%s: %v, %v", name, suffix, info.Mode(), err)
			}
		}
	}
}

func TestWriteRead(t *testing.T) {
	d := openTest(t)
	write := func(fail error) error {
		return d.Write(context.Background(), func(tx *Tx) error {
			if err := tx.Exec("INSERT INTO a(v) VALUES (?)", "x"); err != nil {
				return err
			}
			return fail
		})
	}
	if err := write(nil); err != nil {
		t.Fatal(err)
	}
	if err := write(errors.New("no")); err == nil {
		t.Fatal("no error")
	}
	if n := d.Unsynced(); n == 0 {
		t.Error("a commit counts as synced")
	}
	for _, sql := range []string{"INSERT INTO b VALUES (1)", "DELETE FROM b WHERE x = 2"} { // of which one changes nothing
		mode := 0
		err := d.WriteSync(context.Background(), func(tx *Tx) error {
			return errors.Join(tx.Exec(sql), tx.Query("PRAGMA synchronous", nil, func(r *Row) error { mode = int(r.Int64(0)); return nil }))
		})
		if n := d.Unsynced(); err != nil || n != 0 || mode != 2 {
			t.Fatal(err, n, mode)
		}
		if err := d.Write(context.Background(), func(tx *Tx) error { return tx.Exec("UPDATE b SET x = x") }); err != nil || d.Unsynced() != 1 {
			t.Fatal(err, d.Unsynced())
		}
	}
	if err := d.Sync(); err != nil || d.Unsynced() != 0 {
		t.Fatal(err, d.Unsynced())
	}
	n := 0
	err := d.Read(context.Background(), func(tx *Tx) error {
		return tx.Query("SELECT count(*), NULL FROM a WHERE v = ?", []any{"x"}, func(r *Row) error {
			n = int(r.Int64(0))
			if !r.Null(1) || r.Text(0) != "1" || string(r.Bytes(0)) != "1" || r.Float(0) != 1 {
				t.Error("row is wrong")
			}
			return nil
		})
	})
	if err != nil || n != 1 {
		t.Fatal(err, n)
	}
	path := d.path
	d.Close()
	if _, err := Open(path, "CREATE TABLE c(x);", ""); !errors.Is(err, ErrSchema) {
		t.Fatal(err)
	}
}

// A copy made during writes is one state of the database, and a later copy has
// the same bytes where nothing has changed.
func TestCopy(t *testing.T) {
	d := openTest(t)
	add := func(n int) {
		t.Helper()
		err := d.Write(context.Background(), func(tx *Tx) error {
			for range n {
				if err := tx.Exec("INSERT INTO a(v) VALUES (randomblob(400))"); err != nil {
					return err
				}
			}
			return tx.Exec("INSERT INTO b SELECT count(*) FROM a")
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(2000)
	dir := t.TempDir()
	state := func(name string) (n int64) {
		t.Helper()
		c, err := Open(filepath.Join(dir, name), testTables, "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = c.Read(context.Background(), func(tx *Tx) error {
			return tx.Query("SELECT count(*), (SELECT max(x) FROM b) FROM a", nil, func(r *Row) error {
				if n = r.Int64(0); n != r.Int64(1) {
					t.Errorf("%s is two states: %d and %d rows", name, n, r.Int64(1))
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	pages := func(name string) []string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for page := range slices.Chunk(b, 4096) {
			list = append(list, string(page))
		}
		return list
	}
	copyTo := func(name string) {
		t.Helper()
		if err := d.Copy(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyTo("first")
	before := pages("first")
	if n := state("first"); n != 2000 {
		t.Error(n, "rows")
	}
	add(1)
	copyTo("second")
	same := 0
	for i, page := range pages("second") {
		if i < len(before) && page == before[i] {
			same++
		}
	}
	if same < len(before)*9/10 {
		t.Errorf("only %d pages of %d are as before", same, len(before))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 50 {
			add(20)
		}
	})
	for i := range 5 {
		copyTo(fmt.Sprint("beside", i))
		state(fmt.Sprint("beside", i))
	}
	wg.Wait()
	if err := d.Copy(filepath.Join(dir, "nowhere", "x")); err == nil {
		t.Error("a copy into a directory that is not there")
	}
}

func TestQueryValues(t *testing.T) {
	d := openTest(t)
	res, err := (Source{DB: d}).Query(context.Background(), "SELECT 1 AS one, 2.5, NULL, 'täxt', x'ff00', x'6869', 9e999;  ", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]any{{int64(1), 2.5, nil, "täxt", map[string]string{"base64": "/wA="}, "hi", "Inf"}}
	if diff := cmp.Diff(want, res.Rows); diff != "" || res.Columns[0] != "one" || res.Truncated {
		t.Fatal(diff, res)
	}
}

func TestQueryIsReadOnly(t *testing.T) {
	d := openTest(t)
	other := filepath.Join(t.TempDir(), "other.db")
	for _, sql := range []string{
		"INSERT INTO a(v) VALUES (1)", "DELETE FROM a", "UPDATE a SET v = 1", "DROP TABLE a", "CREATE TABLE z(x)",
		"CREATE TEMP TABLE z(x)", "ATTACH '" + other + "' AS o", "DETACH main", "PRAGMA journal_mode = DELETE", "PRAGMA user_version",
		"SELECT * FROM pragma_database_list", "VACUUM", "VACUUM INTO '" + other + "'", "BEGIN", "SAVEPOINT s", "REINDEX", "ANALYZE",
		"SELECT load_extension('x')", "SELECT 1; SELECT 2", "", " -- nothing", "SELECT nothing FROM nowhere", "WITH",
		"SELECT 1; DROP TABLE a",
	} {
		if _, err := (Source{DB: d}).Query(context.Background(), sql, Limits{}); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%q: %v", sql, err)
		}
	}
	if _, err := (Source{DB: d}).Query(context.Background(), "SELECT * FROM a", Limits{}); err != nil {
		t.Fatal("the table is gone:", err)
	}
}

func TestQueryErrorsAreSentences(t *testing.T) {
	d := openTest(t)
	for sql, want := range map[string]string{
		"selec v from a":                    `in the query: near "selec": syntax error, at line 1, column 1`,
		"SELECT 'ü', nope\nFROM a":          "in the query: no such column: nope, at line 1, column 13",
		"SELECT 1\nFROM a\nWHERE wrong = 1": "in the query: no such column: wrong, at line 3, column 7",
		"SELECT * FROM files":               "in the query: no such table: files",
		"SELECT v FROM a WHERE":             "in the query: the statement is not complete",
		"SELECT f(1)":                       "in the query: no such function: f, at line 1, column 8",
		"PRAGMA user_version":               "the query is not read-only",
		"DELETE FROM a":                     "the query is not read-only",
		"SELECT randomblob(100000000)":      "a value or row of the query exceeds 256 KiB",
		"SELECT 1; SELECT 2":                "the query has more than one statement",
	} {
		if _, err := (Source{DB: d}).Query(context.Background(), sql, Limits{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestQueryLimits(t *testing.T) {
	d := openTest(t)
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) "
	res, err := (Source{DB: d}).Query(context.Background(), endless+"SELECT i FROM n", Limits{Rows: 7})
	if err != nil || len(res.Rows) != 7 || !res.Truncated {
		t.Fatal(err, res)
	}
	res, err = (Source{DB: d}).Query(context.Background(), endless+"SELECT printf('%.*c', 1000, 'x') FROM n", Limits{Bytes: 10_000})
	if err != nil || len(res.Rows) > 10 || !res.Truncated {
		t.Fatal(err, len(res.Rows))
	}
	_, err = (Source{DB: d}).Query(context.Background(), endless+"SELECT count(*) FROM n", Limits{Time: time.Millisecond})
	if holt.CodeOf(err) != holt.Timeout {
		t.Fatal(err)
	}
	if _, err = (Source{DB: d}).Query(context.Background(), "SELECT 1", Limits{}); err != nil {
		t.Fatal("the connection after an interrupt:", err)
	}
}

// TestPanicInWrite: a panic rolls back the transaction.
func TestPanicInWrite(t *testing.T) {
	d := openTest(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_ = d.Write(t.Context(), func(tx *Tx) error {
			if err := tx.Exec("CREATE TABLE half(x)"); err != nil {
				t.Error(err)
			}
			panic("in the middle")
		})
	}()
	if err := d.Write(t.Context(), func(tx *Tx) error { return tx.Exec("CREATE TABLE half(x)") }); err != nil {
		t.Error(err)
	}
}
