package workspaces

import (
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/artifact"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/job"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// openStore opens a store of a daemon without computers.
func openStore(t *testing.T, idle time.Duration) *Store {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(filepath.Join(dir, "holt.db"), computer.Schema+Schema+job.Schema+artifact.Schema, "")
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
	w, err := Open(t.Context(), Config{DB: d, Keys: idempotency.New(d), Dir: filepath.Join(dir, "workspaces"), Workspace: workspace.Options{Log: slog.New(slog.DiscardHandler), Archive: a}})
	if err != nil {
		t.Fatal(err)
	}
	w.open.idle = idle
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestIdleWorkspaces: an unused workspace is closed, and opened again by the next
// use, also if both happen at the same time.
func TestIdleWorkspaces(t *testing.T) {
	w := openStore(t, time.Millisecond)
	id := holt.NewWorkspaceID()
	if err := (ForComputers{w}).Make(t.Context(), id, "notes", holt.Quota{}); err != nil {
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
		if _, open := w.open.figures(id); !open {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an idle workspace stays open")
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

// TestRemoveWhileUsed: a removal waits for the users of the workspace.
func TestRemoveWhileUsed(t *testing.T) {
	w := openStore(t, time.Minute)
	id := holt.NewWorkspaceID()
	if err := (ForComputers{w}).Make(t.Context(), id, "notes", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	ws, release, err := w.View(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() { removed <- w.Remove(t.Context(), id) }()
	for { // until it cannot be found
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

// TestHalfMadeWorkspaces: Open removes what a killed daemon was making or removing.
func TestHalfMadeWorkspaces(t *testing.T) {
	w := openStore(t, time.Minute)
	for _, state := range []string{"creating", "deleting"} {
		id := holt.NewWorkspaceID()
		if err := (ForComputers{w}).Make(t.Context(), id, state, holt.Quota{}); err != nil {
			t.Fatal(err)
		}
		if err := w.table.write(t.Context(), `UPDATE workspace SET state = ? WHERE id = ?`, state, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.open.close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Config{DB: w.table.db, Keys: w.keys, Dir: w.open.dir, Workspace: w.open.base})
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := again.table.rows(t.Context(), ``); err != nil || len(rows) != 0 {
		t.Errorf("%+v %v", rows, err)
	}
	if left, err := filepath.Glob(w.open.dir + "/[^.]*"); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
