package audit

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
)

// TestTenantsKeepTheirEntries: calls of one tenant do not displace the newest entries of another.
func TestTenantsKeepTheirEntries(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	l.keepOwn = 10
	for n := range 30 {
		for _, tenant := range []string{"", "quiet", "loud"} {
			l.Record(t.Context(), Entry{Tenant: tenant, Actor: "token", Op: fmt.Sprint(n)})
		}
	}
	if err := l.db.Write(t.Context(), func(tx *db.Tx) error { // as after a million entries
		return tx.Exec(`INSERT INTO entry SELECT seq + 2 * ?, at, 'loud', actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us FROM entry`, KeepEntries)
	}); err != nil {
		t.Fatal(err)
	}
	l.prune()
	left := ""
	if err := l.db.Read(t.Context(), func(tx *db.Tx) error {
		return tx.Query(`SELECT tenant, count(*), min(CAST(op AS INTEGER)) FROM entry WHERE seq < 1000 GROUP BY tenant`, nil, func(r *db.Row) error {
			left += fmt.Sprintf("%q: %d from %d; ", r.Text(0), r.Int64(1), r.Int64(2))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if want := `"": 10 from 20; "quiet": 10 from 20; `; left != want {
		t.Errorf("%s, want %s", left, want)
	}
}

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAppendOnly: no statement changes, replaces or deletes an entry that must be kept. Old entries are deleted.
func TestAppendOnly(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	defer func() { l.Close() }()
	ctx := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Name: "ci", Tenant: "team-a"})
	l.Record(ctx, Entry{Op: "old", Code: "ok", At: time.Now().Add(-(KeepDays + 1) * 24 * time.Hour)})
	l.Record(ctx, Entry{Op: "new", Code: "ok", Ref: "holt_" + strings.Repeat("a", 16) + "_" + strings.Repeat("b", 52)})
	for _, sql := range []string{
		`UPDATE entry SET code = 'ok'`, `DELETE FROM entry WHERE op = 'new'`, `INSERT OR REPLACE INTO entry SELECT * FROM entry`, `REPLACE INTO entry SELECT * FROM entry WHERE op = 'new'`,
	} {
		if err := l.db.Write(t.Context(), func(tx *db.Tx) error { return tx.Exec(sql) }); err == nil {
			t.Errorf("%s succeeded", sql)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir) // without concurrent writes
	l.prune()
	all, err := l.List(t.Context(), holt.AuditSpec{})
	if err != nil || len(all) != 1 || all[0].Op != "new" || all[0].Tenant != "team-a" || all[0].Name != "ci" || strings.Contains(all[0].Ref, "bbbb") {
		t.Errorf("%+v %v", all, err)
	}
}

// TestRecordCommits: another connection can read an entry as soon as Record returns, also of concurrent calls.
func TestRecordCommits(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	defer l.Close()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 10 {
				l.Record(context.Background(), Entry{Op: "x", Code: "ok"})
			}
		})
	}
	wg.Wait()
	n := int64(0)
	err := db.ReadFile(filepath.Join(dir, "audit.db"), func(tx *db.Tx) error {
		return tx.Query(`SELECT count(*) FROM entry`, nil, func(r *db.Row) error { n = r.Int64(0); return nil })
	})
	if err != nil || n != 500 {
		t.Error(n, err)
	}
}

func BenchmarkRecord(b *testing.B) {
	l := open(b, b.TempDir())
	defer l.Close()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Record(context.Background(), Entry{Op: "x", Code: "ok", Ref: "einstein"})
		}
	})
}

// TestCallersWithoutCredentialAreLimited: their entries do not displace others, from one address or from many. Every call of a token
// is recorded. The next entry of an address has the number of those that were left out.
func TestCallersWithoutCredentialAreLimited(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	at := time.Unix(1_700_000_000, 0)
	knock := func(remote string) {
		l.Record(t.Context(), Entry{At: at, Actor: "nobody", Door: "tcp", Remote: remote, Op: "GET", Ref: "/v1/x", Code: "unauthenticated"})
	}
	for i := range 1000 {
		knock(fmt.Sprintf("198.51.100.7:%d", i))
		knock(fmt.Sprintf("[2001:db8::%x]:1", i))
	}
	count := func() (n int, newest Entry) {
		t.Helper()
		all, err := l.List(t.Context(), holt.AuditSpec{Limit: 1000})
		if err != nil || len(all) == 0 {
			t.Fatal(err)
		}
		return len(all), all[0]
	}
	if n, _ := count(); n != 2 {
		t.Errorf("two addresses have %d entries", n)
	}
	at = at.Add(seldomEvery)
	knock("198.51.100.7:1")
	if n, e := count(); n != 3 || e.Ref != "more=999 /v1/x" {
		t.Errorf("after a minute there are %d entries, the last %q", n, e.Ref)
	}
	for i := range 3 * mostSeldom {
		knock(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	known := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: "team-a"})
	for range 500 {
		l.Record(known, Entry{At: at, Op: "createComputer", Code: "forbidden", Door: "tcp", Remote: "198.51.100.7:1"})
	}
	n, _ := count()
	if n -= 500; n < seldomBurst || n > seldomBurst+3 || len(l.refused.of) > mostSeldom {
		t.Errorf("many addresses have %d entries, %d are remembered", n, len(l.refused.of))
	}
	l.Record(t.Context(), Entry{At: at, Actor: "nobody", Name: "public", Door: "preview", Remote: "10.0.0.1", Op: "visit", Code: "begun"})
	if _, e := count(); e.Op != "visit" {
		t.Error("refusals displace visits:", e)
	}
}

// TestEndlessQueries: endless queries of one tenant do not keep an admin or another tenant from querying.
func TestEndlessQueries(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	as := func(ctx context.Context, tenant string) context.Context {
		return holt.WithActor(ctx, holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant, Rights: holt.Rights{Admin: tenant == "admins"}})
	}
	over, end := context.WithTimeout(t.Context(), 30*time.Second)
	var loud sync.WaitGroup
	defer loud.Wait()
	defer end()
	refused := make(chan error, 20)
	for range 20 {
		loud.Go(func() {
			_, err := l.Query(as(over, "loud"), "loud", holt.TableQuery{SQL: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", TimeoutMS: 60_000})
			refused <- err
		})
	}
	for range 11 { // one runs, eight wait
		if err := <-refused; holt.CodeOf(err) != holt.TooMany {
			t.Error(err)
		}
	}
	for who, tenant := range map[string]string{"admins": "", "quiet": "quiet"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := l.Query(as(ctx, who), tenant, holt.TableQuery{SQL: "SELECT count(*) FROM audit"}); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		cancel()
	}
}
