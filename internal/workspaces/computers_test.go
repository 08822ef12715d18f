package workspaces

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// TestSwapWorkspaces: a branch is hidden until Swap, which gives it the name and quota of another
// workspace. That one gets another name, or is deleted.
func TestSwapWorkspaces(t *testing.T) {
	ctx := t.Context()
	w := openStore(t, time.Minute)
	g := ForComputers{w}
	quota := holt.Quota{Bytes: 1 << 30, Files: 1000}
	old, err := w.Create(ctx, holt.WorkspaceSpec{Name: "einstein", Quota: quota}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(ctx, holt.WorkspaceSpec{Name: "einstein-left"}, ""); err != nil {
		t.Fatal(err)
	}
	err = w.use(ctx, "einstein", func(_ context.Context, ws *workspace.Workspace) error {
		_, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "then"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	gone := holt.NewWorkspaceID()
	if err := g.Branch(ctx, gone, old.ID, "never", false); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a branch of no checkpoint: %v", err)
	}
	branch := holt.NewWorkspaceID()
	if err := g.Branch(ctx, branch, old.ID, "then", false); err != nil {
		t.Fatal(err)
	}
	names := func(want ...string) {
		t.Helper()
		all, err := w.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, one := range all {
			has = append(has, one.Name)
		}
		if !slices.Equal(has, want) {
			t.Errorf("there are %q, want %q", has, want)
		}
	}
	names("einstein", "einstein-left")
	swap := func(out, in holt.WorkspaceID, left string, keep bool) {
		t.Helper()
		if err := w.table.change(ctx, func(tx *db.Tx) error { return g.Swap(tx, out, in, left, keep) }); err != nil {
			t.Fatal(err)
		}
	}
	swap(old.ID, branch, "einstein-left", true)
	names("einstein", "einstein-left", "einstein-left-2")
	now, err := w.Get(ctx, "einstein")
	if err != nil || now.ID != branch || now.Quota != quota || now.Parent == nil || now.Parent.Name != "einstein-left-2" {
		t.Errorf("what took its place: %+v %v", now, err)
	}
	swap(branch, old.ID, "", false)
	names("einstein", "einstein-left")
	if now, err := w.Get(ctx, "einstein"); err != nil || now.ID != old.ID {
		t.Errorf("and back: %+v %v", now, err)
	}
	if err := g.Remove(ctx, branch); err != nil {
		t.Error(err)
	}
	names("einstein", "einstein-left")
}

// TestUnnamedBranch: Open removes the branch of a restore that a killed daemon had begun.
func TestUnnamedBranch(t *testing.T) {
	ctx := t.Context()
	w := openStore(t, time.Minute)
	old, err := w.Create(ctx, holt.WorkspaceSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	err = w.use(ctx, "einstein", func(_ context.Context, ws *workspace.Workspace) error {
		_, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "then"})
		return err
	})
	branch := holt.NewWorkspaceID()
	if err == nil {
		err = ForComputers{w}.Branch(ctx, branch, old.ID, "then", false)
	}
	if err == nil {
		err = w.open.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	next, err := Open(ctx, Config{DB: w.table.db, Keys: w.keys, Dir: w.open.dir, Workspace: w.open.base})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	for id, want := range map[holt.WorkspaceID]bool{branch: false, old.ID: true} {
		if _, err := os.Stat(next.open.path(id)); want != (err == nil) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestFreeName: a name with a number appended is still a valid name.
func TestFreeName(t *testing.T) {
	w := openStore(t, time.Minute)
	long := strings.Repeat("a", 62)
	var names []string
	for range 3 {
		var name string
		err := w.table.change(t.Context(), func(tx *db.Tx) (err error) {
			if name, err = freeName(tx, holt.DefaultTenant, long+"-before-restore"); err == nil {
				err = tx.Exec(`INSERT INTO workspace (id, name, state, created) VALUES (?, ?, 'creating', 0)`, holt.NewWorkspaceID(), name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holt.ParseName(name); err != nil || slices.Contains(names, name) {
			t.Errorf("%q after %q: %v", name, names, err)
		}
		names = append(names, name)
	}
}
