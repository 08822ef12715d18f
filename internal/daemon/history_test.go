package daemon_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/daemon"
	"holt/internal/workspace"
)

// ran runs a command that must succeed, and returns its id with its receipt.
func ran(t *testing.T, d *daemon.Daemon, computer, command string) (string, holt.Receipt) {
	t.Helper()
	r := run(t, d, computer, command)
	if r.ExitCode != 0 {
		t.Fatalf("%s: %+v", command, r)
	}
	receipt, err := d.Computers().Runs().Receipt(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.ID), receipt
}

func counts(deleted, renamed, created, changed int) [4]int {
	return [4]int{deleted, renamed, created, changed}
}

func countsOf(n holt.Counts) [4]int { return counts(n.Deleted, n.Renamed, n.Created, n.Changed) }

// TestRunsLeaveHistory: what runs change has checkpoints before and after it
// and can be taken back under the running computer, whose programs see it.
func TestRunsLeaveHistory(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, h := t.Context(), d.Workspaces().History()
	_, made := ran(t, d, "curie", "mkdir -p src/deep && echo one > src/a && echo two > src/deep/b && seq 100 > n")
	if countsOf(made.Counts) != counts(0, 0, 5, 0) || made.Before == "" || made.After == "" {
		t.Errorf("the first run: %+v", made)
	}
	removed, r := ran(t, d, "curie", "rm -r src")
	if countsOf(r.Counts) != counts(4, 0, 0, 0) || r.Before != made.After || r.After == "" {
		t.Errorf("the second run: %+v", r)
	}
	_, r = ran(t, d, "curie", "mv n numbers; echo 101 >> numbers")
	if countsOf(r.Counts) != counts(0, 1, 0, 0) || !r.Changes[0].Content {
		t.Errorf("the third run: %+v", r)
	}
	if _, r = ran(t, d, "curie", "cat numbers > /dev/null"); r.Counts.Total() != 0 || r.After != "" {
		t.Errorf("a run that changes nothing: %+v", r)
	}
	all, err := h.Checkpoints(ctx, "curie")
	if err != nil || len(all) != 4 { // before the first, and after the three
		t.Errorf("%d checkpoints, %v: %+v", len(all), err, all)
	}
	report, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: removed}, "undo")
	if err != nil || len(report.Conflicts) > 0 || report.Counts.Created != 4 || report.Unflushed {
		t.Fatalf("undo: %+v, %v", report, err)
	}
	if again, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: removed}, "undo"); err != nil || again.Before != report.Before {
		t.Errorf("a repeated undo: %+v, %v", again, err)
	}
	if out := succeeds(t, d, "curie", "cat src/a src/deep/b; tail -n 1 numbers; ls"); out != "one\ntwo\n101\nnumbers\nsrc\n" {
		t.Errorf("after the undo: %q", out)
	}
	if _, err := h.Restore(ctx, "curie", holt.RestoreSpec{Checkpoint: made.After}, ""); err != nil {
		t.Fatal(err)
	}
	if out := succeeds(t, d, "curie", "cat src/a; ls; stat -c %s n"); out != "one\nn\nsrc\n292\n" {
		t.Errorf("after the restore: %q", out)
	}
	if w, err := h.Blame(ctx, "curie", "/n"); err != nil || w.Run != made.Run {
		t.Errorf("blame: %+v, %v", w, err)
	}
	_, err = d.Computers().Runs().Receipt(ctx, holt.NewRunID())
	wantCode(t, err, holt.NotFound)
}

// TestUndoOfARunThatGoesOn: what has not ended is not taken back, since it could change more; a dry run says what it has
// changed, and once it has ended it is undone.
func TestUndoOfARunThatGoesOn(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, h, runs := t.Context(), d.Workspaces().History(), d.Computers().Runs()
	run, err := runs.Start(ctx, "curie", holt.RunSpec{Command: "echo one > made; echo ready; sleep 1000"}, "")
	if err != nil {
		t.Fatal(err)
	}
	ready := errors.New("ready")
	if err := runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return ready }); !errors.Is(err, ready) {
		t.Fatal(err)
	}
	for _, ref := range []string{string(run.ID), ""} {
		_, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: ref}, "key")
		wantCode(t, err, holt.Conflict)
		if hint := holt.AsError(err).Hint; !strings.Contains(hint, "holt run kill "+string(run.ID)) {
			t.Errorf("the hint is %q", hint)
		}
	}
	if would, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: string(run.ID), DryRun: true}, ""); err != nil || would.Counts.Deleted != 1 {
		t.Errorf("a dry run: %+v, %v", would, err)
	}
	if err := runs.Signal(ctx, run.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	if err := runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if report, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: string(run.ID)}, "key"); err != nil || report.Counts.Deleted != 1 {
		t.Errorf("once it has ended: %+v, %v", report, err)
	}
}

// TestOldCheckpointsGo: automatic ones beyond those to keep.
func TestOldCheckpointsGo(t *testing.T) {
	cfg := config(t, home(t))
	cfg.Keep = workspace.Retention{Last: 3}
	d := up(t, cfg)
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, h := t.Context(), d.Workspaces().History()
	if _, err := h.Checkpoint(ctx, "curie", holt.CheckpointSpec{Name: "mine"}, ""); err != nil {
		t.Fatal(err)
	}
	var last holt.Receipt
	for i := range 6 {
		_, last = ran(t, d, "curie", fmt.Sprint("echo ", i, " > f"))
	}
	all, err := h.Checkpoints(ctx, "curie")
	if err != nil || len(all) != 4 || all[0].Name != "mine" || all[3].Name != last.After {
		t.Errorf("%v %+v", err, all)
	}
}

// TestRestoreSeenOnHost: what is mounted on the host shows a restore at once.
func TestRestoreSeenOnHost(t *testing.T) {
	d := up(t, config(t, home(t)))
	ctx, h := t.Context(), d.Workspaces().History()
	if _, err := d.Workspaces().Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if _, err := d.Workspaces().Mount(ctx, "notes", holt.MountSpec{Dir: at}, ""); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(at, "f")
	if err := put(file, "then"); err != nil {
		t.Fatal(err)
	}
	c, err := h.Checkpoint(ctx, "notes", holt.CheckpointSpec{Name: "then"}, "")
	if err != nil || !c.Flushed {
		t.Fatal(c, err)
	}
	if err := put(file, "later"); err != nil {
		t.Fatal(err)
	}
	if got, err := cat(file); got != "later" || err != nil {
		t.Fatal(got, err)
	}
	if _, err := h.Restore(ctx, "notes", holt.RestoreSpec{Checkpoint: "then"}, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := cat(file); got != "then" || err != nil {
		t.Errorf("after the restore: %q %v", got, err)
	}
	if err := d.Workspaces().Unmount(ctx, at, ""); err != nil {
		t.Error(err)
	}
}
