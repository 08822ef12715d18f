package daemon

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/workspace"
)

// lonely is a registry of a daemon without computers.
func lonely(t *testing.T) *Workspaces {
	t.Helper()
	w := openRegistry(t, time.Minute)
	w.guests = nil
	w.mounts.having = func(context.Context, holt.WorkspaceID) (holt.Computer, bool, error) {
		return holt.Computer{}, false, nil
	}
	w.mounts.keeping = w.mounts.having
	return w
}

// ended waits for what must not wait for a user's patience.
func ended(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(dropWait):
		t.Fatal(what, "goes on")
		return nil
	}
}

// TestDeleteEndsUses: what goes on with a workspace that is deleted is given up
// with an error that says so, and the deletion goes on then.
func TestDeleteEndsUses(t *testing.T) {
	w := lonely(t)
	for _, name := range []string{"one", "other"} {
		if err := (guestSpaces{w}).Make(t.Context(), holt.NewWorkspaceID(), name, holt.Quota{}); err != nil {
			t.Fatal(err)
		}
	}
	began, used := make(chan struct{}), make(chan error, 1)
	go func() {
		h := w.History()
		used <- h.use(context.Background(), "one", func(ctx context.Context, _ workspace.History) error {
			return h.use(ctx, "other", func(ctx context.Context, _ workspace.History) error { // as a merge does
				close(began)
				<-ctx.Done()
				return ctx.Err()
			})
		})
	}()
	<-began
	deleted := make(chan error, 1)
	go func() { deleted <- w.Delete(context.Background(), "one", "") }()
	err := ended(t, "the use", used)
	if holt.CodeOf(err) != holt.NotFound || !strings.Contains(err.Error(), "has been deleted") {
		t.Errorf("the use ended with: %v", err)
	}
	if err := ended(t, "the deletion", deleted); err != nil {
		t.Error(err)
	}
	if err := w.use(t.Context(), "other", func(ctx context.Context, _ *workspace.Workspace) error { return ctx.Err() }); err != nil {
		t.Errorf("the other workspace: %v", err)
	}
}

// TestDeleteEndsFork: also a fork, of which nothing is left; and whoever found
// the workspace before does not open it any more.
func TestDeleteEndsFork(t *testing.T) {
	w := lonely(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	w.shelf.base.Fail = func(point string) error {
		if point == "fork.clone" {
			close(began)
			<-goOn
		}
		return nil
	}
	id := holt.NewWorkspaceID()
	if err := (guestSpaces{w}).Make(t.Context(), id, "one", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	forked, deleted := make(chan error, 1), make(chan error, 1)
	go func() { _, err := w.Fork(context.Background(), "one", holt.ForkSpec{Name: "two"}, ""); forked <- err }()
	<-began
	go func() { deleted <- w.Delete(context.Background(), "one", "") }()
	for going := false; !going; {
		e, _, err := w.shelf.acquire(id)
		if err == nil {
			w.shelf.release(e)
		} else if going = true; holt.CodeOf(err) != holt.NotFound {
			t.Error(err)
		}
	}
	close(goOn)
	if err := ended(t, "the fork", forked); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the fork ended with: %v", err)
	}
	if err := ended(t, "the deletion", deleted); err != nil {
		t.Error(err)
	}
	if _, _, err := w.shelf.acquire(id); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("opened when it was gone: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(w.shelf.dir, "wsp_*"))
	rows, lost := w.table.rows(t.Context(), ``)
	if err != nil || lost != nil || len(left) != 0 || len(rows) != 0 || len(w.shelf.going) != 0 {
		t.Errorf("left: %v, rows %+v, %v %v", left, rows, err, lost)
	}
}

// TestMergeSaysNames: what a merge by id leaves in the list of checkpoints says
// the names.
func TestMergeSaysNames(t *testing.T) {
	w := lonely(t)
	id := holt.NewWorkspaceID()
	if err := (guestSpaces{w}).Make(t.Context(), id, "one", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	out, err := w.Fork(t.Context(), string(id), holt.ForkSpec{Name: "two"}, "")
	if err != nil {
		t.Fatal(err)
	}
	fork := string(out.Workspaces[0].Workspace.ID)
	if _, err := w.Files().Mkdir(t.Context(), fork, holt.MkdirSpec{Path: "/new"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Merge(t.Context(), string(id), holt.MergeSpec{From: fork}, ""); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{string(id): "merge of two", fork: "one"} {
		list, err := w.History().Checkpoints(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, c := range list {
			said += c.Note + "\n"
		}
		if !strings.Contains(said, want) || strings.Contains(said, "wsp_") {
			t.Errorf("%s: %s", ref, said)
		}
	}
}
