package workspaces

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/workspace"
)

// ended waits for something that must end before deleteWait.
func ended(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(deleteWait):
		t.Fatal(what, "does not end")
		return nil
	}
}

// TestDeleteEndsUses: a deletion ends the uses of the workspace with an error that
// says so, and then succeeds.
func TestDeleteEndsUses(t *testing.T) {
	w := openStore(t, time.Minute)
	for _, name := range []string{"one", "other"} {
		if err := (ForComputers{w}).Make(t.Context(), holt.NewWorkspaceID(), name, holt.Quota{}); err != nil {
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

// TestDeleteEndsFork: a deletion ends a fork of the workspace and nothing of the
// fork is left. The workspace cannot be opened any more.
func TestDeleteEndsFork(t *testing.T) {
	w := openStore(t, time.Minute)
	began, proceed := make(chan struct{}), make(chan struct{})
	w.open.base.Fail = func(point string) error {
		if point == "fork.clone" {
			close(began)
			<-proceed
		}
		return nil
	}
	id := holt.NewWorkspaceID()
	if err := (ForComputers{w}).Make(t.Context(), id, "one", holt.Quota{}); err != nil {
		t.Fatal(err)
	}
	forked, deleted := make(chan error, 1), make(chan error, 1)
	go func() { _, err := w.Fork(context.Background(), "one", holt.ForkSpec{Name: "two"}, ""); forked <- err }()
	<-began
	go func() { deleted <- w.Delete(context.Background(), "one", "") }()
	for deleting := false; !deleting; {
		e, _, err := w.open.acquire(id)
		if err == nil {
			w.open.release(e)
		} else if deleting = true; holt.CodeOf(err) != holt.NotFound {
			t.Error(err)
		}
	}
	close(proceed)
	if err := ended(t, "the fork", forked); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the fork ended with: %v", err)
	}
	if err := ended(t, "the deletion", deleted); err != nil {
		t.Error(err)
	}
	if _, _, err := w.open.acquire(id); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("opened when it was gone: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(w.open.dir, "wsp_*"))
	rows, lost := w.table.rows(t.Context(), ``)
	if err != nil || lost != nil || len(left) != 0 || len(rows) != 0 || len(w.open.deleting) != 0 {
		t.Errorf("left: %v, rows %+v, %v %v", left, rows, err, lost)
	}
}

// TestMergeNotesHaveNames: the checkpoints of a merge by id have the names of the
// workspaces in their notes.
func TestMergeNotesHaveNames(t *testing.T) {
	w := openStore(t, time.Minute)
	id := holt.NewWorkspaceID()
	if err := (ForComputers{w}).Make(t.Context(), id, "one", holt.Quota{}); err != nil {
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
