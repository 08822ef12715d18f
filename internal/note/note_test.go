package note

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

func TestStore(t *testing.T) {
	d, err := db.Open(filepath.Join(t.TempDir(), "control.db"), []string{idempotency.Schema + Schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	s := New(d, idempotency.New(d))
	of := func(tenant string) context.Context { return holt.WithActor(t.Context(), holt.Actor{Tenant: tenant}) }
	a, b := of("team-a"), of("team-b")
	want := func(err error, code holt.Code) {
		t.Helper()
		if holt.CodeOf(err) != code {
			t.Errorf("%v, want %q", err, code)
		}
		if e := holt.AsError(err); code != "" && e.Hint == "" {
			t.Errorf("%v has no hint", err)
		}
	}

	spec := holt.NoteSpec{Name: "shopping", Text: "milk"}
	made, err := s.Create(a, spec, "one")
	if err != nil || made.Tenant != "team-a" || made.Text != "milk" {
		t.Fatal(made, err)
	}
	if again, err := s.Create(a, spec, "one"); err != nil || again != made {
		t.Error("repeated:", again, err)
	}
	_, err = s.Create(a, holt.NoteSpec{Name: "shopping", Text: "bread"}, "one")
	want(err, holt.Conflict)
	_, err = s.Create(a, spec, "")
	want(err, holt.AlreadyExists)
	for _, bad := range []holt.NoteSpec{{Name: "No", Text: "x"}, {Name: "x"}, {Name: "x", Text: strings.Repeat("ä", holt.MaxNoteText+1)}} {
		_, err = s.Create(a, bad, "")
		want(err, holt.InvalidArgument)
	}

	// Another tenant has other notes, also under the same name.
	_, err = s.Get(b, "shopping")
	want(err, holt.NotFound)
	_, err = s.Update(b, "shopping", holt.NoteChange{Text: "x"}, "")
	want(err, holt.NotFound)
	want(s.Delete(b, "shopping", ""), holt.NotFound)
	if _, err := s.Create(b, holt.NoteSpec{Name: "shopping", Text: "tea"}, "one"); err != nil {
		t.Error(err)
	}
	for ctx, n := range map[context.Context]int{a: 1, b: 1, t.Context(): 2} {
		if all, err := s.List(ctx); err != nil || len(all) != n {
			t.Error(all, err, n)
		}
	}

	if n, err := s.Update(a, "shopping", holt.NoteChange{Text: "bread"}, "two"); err != nil || n.Text != "bread" || !n.CreatedAt.Equal(made.CreatedAt) {
		t.Error(n, err)
	}
	_, err = s.Update(a, "shopping", holt.NoteChange{}, "")
	want(err, holt.InvalidArgument)
	for range 2 {
		want(s.Delete(a, "shopping", "three"), "")
	}
	want(s.Delete(a, "shopping", ""), holt.NotFound)
	if n, err := s.Get(b, "shopping"); err != nil || n.Text != "tea" {
		t.Error(n, err)
	}
	err = d.Write(a, func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO note SELECT 'team-a', 'n' || i, 'x', 0, 0 FROM n`, holt.MaxNotes)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(a, spec, "")
	want(err, holt.TooMany)
}
