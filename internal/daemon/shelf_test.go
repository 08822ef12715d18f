package daemon

import (
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

func openRegistry(t *testing.T, idle time.Duration) *Workspaces {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(filepath.Join(dir, "holt.db"), migrations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	store, err := chunk.OpenDir(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := chunk.Open(t.Context(), dir, chunk.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	w, err := openWorkspaces(t.Context(), d, idempotency.New(d), filepath.Join(dir, "workspaces"), workspace.Options{Log: slog.New(slog.DiscardHandler), Archive: a})
	if err != nil {
		t.Fatal(err)
	}
	w.shelf.idle = idle
	w.setComputers(&computer.Store{})
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestIdleWorkspaces: a workspace that nobody uses is closed, and opened again
// for whoever comes, also at that moment.
func TestIdleWorkspaces(t *testing.T) {
	w := openRegistry(t, time.Millisecond)
	id := holt.NewWorkspaceID()
	if err := (guestSpaces{w}).Make(t.Context(), id, "notes", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		t.Helper()
		ws, release, err := w.View(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if _, err := ws.Tree().Create(workspace.Caller{}, workspace.Root, name, 0o644); err != nil {
			t.Error(err)
		}
	}
	write("before")
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, open := w.shelf.figures(id); !open {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it stays open")
		}
	}
	if rows, err := w.table.rows(t.Context(), `WHERE id = ?`, id); err != nil || len(rows) != 1 || rows[0].files != 3 {
		t.Errorf("the figures of a closed workspace: %+v %v", rows, err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 25 {
				write(string(rune('a'+i)) + string(rune('a'+j)))
			}
		})
	}
	wg.Wait()
	report, err := w.Check(t.Context(), "notes")
	if err != nil || len(report.Problems) > 0 || report.Inodes != 104 {
		t.Errorf("%+v %v", report, err)
	}
}

// TestRemoveWhileUsed: who uses a workspace finishes before it goes.
func TestRemoveWhileUsed(t *testing.T) {
	w := openRegistry(t, time.Minute)
	id := holt.NewWorkspaceID()
	if err := (guestSpaces{w}).Make(t.Context(), id, "notes", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	ws, release, err := w.View(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() { removed <- w.Remove(t.Context(), id) }()
	for { // it is being deleted: nobody finds it any more
		if _, _, err := w.Find(t.Context(), "notes"); holt.CodeOf(err) == holt.NotFound {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := ws.Tree().Create(workspace.Caller{}, workspace.Root, "late", 0o644); err != nil {
		t.Error("while it is used:", err)
	}
	release()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if err := w.Remove(t.Context(), id); err != nil {
		t.Error("a second time:", err)
	}
}

// TestHalfMadeWorkspaces: what a killed daemon was making or removing goes.
func TestHalfMadeWorkspaces(t *testing.T) {
	w := openRegistry(t, time.Minute)
	for _, state := range []string{"creating", "deleting"} {
		id := holt.NewWorkspaceID()
		if err := (guestSpaces{w}).Make(t.Context(), id, state, holt.Quota{}); err != nil {
			t.Fatal(err)
		}
		if err := w.table.write(t.Context(), `UPDATE workspace SET state = ? WHERE id = ?`, state, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.shelf.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openWorkspaces(t.Context(), w.table.db, w.keys, w.shelf.dir, w.shelf.base)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := again.table.rows(t.Context(), ``); err != nil || len(rows) != 0 {
		t.Errorf("%+v %v", rows, err)
	}
	if left, err := filepath.Glob(w.shelf.dir + "/[^.]*"); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
