package db

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

// A clone made during writes is one state of the database: the counter matches
// the rows, and no earlier commit is missing.
func TestCloneDuringWrites(t *testing.T) {
	ctx := context.Background()
	d := openTest(t)
	stop, ended := make(chan struct{}), make(chan error, 1)
	write := func(i int) error {
		return d.Write(ctx, func(tx *Tx) error {
			if i%50 == 49 { // begin the log anew
				if err := tx.Exec("DELETE FROM a WHERE k % 2 = 0"); err != nil {
					return err
				}
			}
			if err := tx.Exec("INSERT INTO a(v) VALUES (?)", fmt.Sprintf("%04000d", i)); err != nil {
				return err
			}
			if err := tx.Exec("DELETE FROM b"); err != nil {
				return err
			}
			return tx.Exec("INSERT INTO b SELECT count(*) FROM a")
		})
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(ctx, func(tx *Tx) error {
		return tx.Query("PRAGMA wal_autocheckpoint = 30", nil, func(*Row) error { return nil })
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := write(i); err != nil {
				ended <- err
				return
			}
		}
	}()
	for i := range 20 {
		path := filepath.Join(t.TempDir(), "clone.db")
		least := count(t, d, "SELECT max(k) FROM a")
		if err := d.Clone(ctx, path); err != nil {
			t.Fatal(err)
		}
		c, err := Open(path, testTables, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
		if n := count(t, c, "SELECT count(*) - (SELECT x FROM b) FROM a"); n != 0 {
			t.Fatal("clone ", i, " is torn: ", n)
		}
		if bad := count(t, c, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"); bad != 0 {
			t.Fatal("clone ", i, " is damaged")
		}
		if got := count(t, c, "SELECT max(k) FROM a"); got < least {
			t.Fatalf("clone %d ends at %d, before it began at %d", i, got, least)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, d *DB, sql string) (n int64) {
	t.Helper()
	err := d.Read(context.Background(), func(tx *Tx) error {
		return tx.Query(sql, nil, func(r *Row) error { n = r.Int64(0); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
