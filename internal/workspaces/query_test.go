package workspaces

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// TestQueryDuringForksAndDeletes queries workspaces and their forks while they are
// forked and deleted. Each query returns rows, or NotFound.
func TestQueryDuringForksAndDeletes(t *testing.T) {
	w := openStore(t, time.Hour)
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		if _, err := w.Create(ctx, holt.WorkspaceSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 6
	var wg sync.WaitGroup
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}, {"b", "b-1"}, {"a", "a-1"}, {"b-1", "a-1"}} {
		wg.Go(func() {
			for range rounds {
				r, err := w.Query(ctx, names[0], holt.QuerySpec{SQL: "SELECT workspace, count(*) FROM files GROUP BY 1", Also: names[1:], Forks: true})
				gone := holt.CodeOf(err) == holt.NotFound
				if err != nil && !gone || err == nil && len(r.Rows) < 2 {
					t.Errorf("%v: %+v, %v", names, r.Rows, err)
				}
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			for i := range rounds {
				_, err := w.Fork(ctx, name, holt.ForkSpec{Name: name + "-1"}, fmt.Sprint(name, i))
				if err == nil {
					err = w.Delete(ctx, name+"-1", fmt.Sprint("delete", name, i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestQueryErrors: an error names the workspace, and a half-made workspace is not found.
func TestQueryErrors(t *testing.T) {
	w := openStore(t, time.Hour)
	ctx := t.Context()
	if _, err := w.Create(ctx, holt.WorkspaceSpec{Name: "a"}, ""); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"creating", "deleting"} {
		if err := w.table.write(ctx, `INSERT INTO workspace (id, name, state, created, parent) VALUES (?, ?, ?, 1, (SELECT id FROM workspace WHERE name = 'a'))`,
			holt.NewWorkspaceID(), "half-"+state, state); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Query(ctx, "a", holt.QuerySpec{SQL: "SELECT DISTINCT workspace FROM files", Forks: true})
	if err != nil || fmt.Sprint(r.Rows) != "[[a]]" {
		t.Errorf("%v, %v", r.Rows, err)
	}
	const sql = "SELECT 1"
	many := make([]string, holt.MostQueried)
	for i := range many {
		many[i] = fmt.Sprintf("a@x%d", i)
	}
	for _, one := range []struct {
		ref  string
		spec holt.QuerySpec
		code holt.Code
		says string
	}{
		{"half-creating", holt.QuerySpec{SQL: sql}, holt.NotFound, "half-creating"},
		{"a", holt.QuerySpec{SQL: sql, Also: []string{"half-deleting"}}, holt.NotFound, "half-deleting"},
		{"a", holt.QuerySpec{SQL: sql, Also: []string{"a@nothing"}}, holt.NotFound, "a@nothing: there is no checkpoint"},
		{"a", holt.QuerySpec{SQL: "SELECT * FROM changes('nothing')", Also: []string{"a"}}, holt.NotFound, "a: there is no checkpoint"},
		{"a", holt.QuerySpec{SQL: sql, At: "nothing"}, holt.NotFound, "nothing"},
		{"a@nothing", holt.QuerySpec{SQL: sql, Also: []string{"a"}}, holt.NotFound, "a@nothing: there is no checkpoint"},
		{"a@live", holt.QuerySpec{SQL: sql, At: "x", Also: []string{"a@x"}}, holt.InvalidArgument, "applies to no workspace"},
		{"a", holt.QuerySpec{SQL: sql, Also: many}, holt.InvalidArgument, "101 workspaces"},
		{"a", holt.QuerySpec{SQL: sql, TimeoutMS: 300_001}, holt.InvalidArgument, "5m at most"},
		{"a", holt.QuerySpec{SQL: "SELECT nothing FROM files", Also: []string{"a@live"}}, holt.InvalidArgument, "nothing"},
	} {
		_, err := w.Query(ctx, one.ref, one.spec)
		if e := holt.AsError(err); err == nil || e.Code != one.code || e.Hint == "" || !strings.Contains(e.Message, one.says) {
			t.Errorf("%s %+v: %+v", one.ref, one.spec, e)
		}
	}
}

// TestEndlessQueries: the queries of one tenant do not keep another tenant's from running.
func TestEndlessQueries(t *testing.T) {
	w := openStore(t, time.Hour)
	as := func(ctx context.Context, tenant string) context.Context {
		return holt.WithActor(ctx, holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant})
	}
	for _, name := range []string{"loud-1", "loud-2", "quiet-1"} {
		tenant, _, _ := strings.Cut(name, "-")
		if _, err := w.Create(as(t.Context(), tenant), holt.WorkspaceSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	over, end := context.WithTimeout(t.Context(), 30*time.Second)
	var loud sync.WaitGroup
	defer loud.Wait()
	defer end()
	refused := make(chan error, 20)
	for i := range 20 {
		loud.Go(func() {
			_, err := w.Query(as(over, "loud"), fmt.Sprint("loud-", 1+i%2), holt.QuerySpec{SQL: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", TimeoutMS: 300_000})
			refused <- err
		})
	}
	for range 10 { // two run, eight wait
		if err := <-refused; holt.CodeOf(err) != holt.TooMany {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(as(t.Context(), "quiet"), 20*time.Second)
	defer cancel()
	if _, err := w.Query(ctx, "quiet-1", holt.QuerySpec{SQL: "SELECT count(*) FROM files"}); err != nil {
		t.Error("another tenant's query:", err)
	}
}
