package daemon_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holt"
)

// putAway has a snapshot stored by a daemon that is killed on the way, its memory taken off this
// disk, and forked from the archive; damaged there, nothing comes of it. What a computer is
// paused at can be in the archive only, too.
func (v *vm) putAway(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	v.says(computer, "echo before > /run/away")
	v.kill()
	setenv(t, envSnapshots, "1")
	v.again("keep/strip")
	done, caller := make(chan error, 1), connect(t, v.dir)
	go func() {
		_, err := caller.Computers.Snapshot(ctx, computer, holt.SnapshotSpec{Name: "away"}, "away")
		done <- err
	}()
	v.dies("keep/strip")
	v.again("")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	v.says(computer, "echo after > /run/away")
	v.isAway("away")
	packs := map[string][]byte{}
	for _, path := range packsIn(t, filepath.Join(v.dir, "archive", "store")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		packs[path] = slices.Clone(b)
		for i := 1000; i < len(b)-1000; i += 5000 {
			b[i] ^= 1
		}
		v.write(path, b)
	}
	if _, err := v.Snapshots.Fork(ctx, "away", holt.ComputerForkSpec{Name: "ghost"}, ""); holt.CodeOf(err) != holt.Corrupt || !strings.Contains(err.Error(), "archive") {
		t.Errorf("from damaged memory: %v", err)
	}
	if _, err := v.Computers.Get(ctx, "ghost"); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the fork that could not be made: %v", err)
	}
	if _, err := v.Snapshots.Restore(ctx, "away", holt.SnapshotRestoreSpec{}, ""); holt.CodeOf(err) != holt.Corrupt {
		t.Errorf("back to damaged memory: %v", err)
	}
	if all, err := v.Snapshots.List(ctx, computer); err != nil || len(all) != 1 {
		t.Errorf("a restore that cannot be has kept the present: %+v %v", all, err)
	}
	for path, b := range packs {
		v.write(path, b)
	}
	if _, err := v.Snapshots.Fork(ctx, "away", holt.ComputerForkSpec{Name: "back"}, ""); err != nil {
		t.Fatal(err)
	}
	if said := v.says("back", "cat /run/away") + v.says(computer, "cat /run/away"); said != "beforeafter" {
		t.Errorf("from the archive: %q", said)
	}
	if _, err := v.Computers.Delete(ctx, "back", ""); err != nil {
		t.Error(err)
	}
	if freed, err := v.Snapshots.Delete(ctx, "away", ""); err != nil || freed.Archived == 0 {
		t.Errorf("%+v %v", freed, err)
	}
	c, err := v.Computers.Pause(ctx, computer, "")
	if err != nil {
		t.Fatal(err)
	}
	v.isAway(string(c.Snapshot))
	v.kill()
	setenv(t, envSnapshots, "")
	v.again("")
	if said := v.says(computer, "cat /run/away"); said != "after" {
		t.Errorf("resumed from the archive: %q", said)
	}
}

// isAway waits until the memory of a snapshot is in the archive only.
func (v *vm) isAway(ref string) {
	v.t.Helper()
	within(v.t, ref+" to be in the archive only", func() bool {
		m, err := v.Snapshots.Get(v.t.Context(), ref)
		if err != nil {
			v.t.Fatal(err)
		}
		return m.Archived && m.ArchivedBytes > 0 && m.Bytes < 2<<20
	})
}

func (v *vm) write(path string, b []byte) {
	v.t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		v.t.Fatal(err)
	}
}

// nothingArchived fails if the archive has anything once all is deleted.
func (v *vm) nothingArchived() {
	v.t.Helper()
	ctx := v.t.Context()
	_, err := v.Archive.Collect(ctx, "")
	var report holt.ArchiveReport
	if err == nil {
		report, err = v.Archive.Check(ctx)
	}
	var a holt.Archive
	if err == nil {
		a, err = v.Archive.Get(ctx)
	}
	if err != nil || len(report.Problems) > 0 || a.Spaces > 0 || a.Stored > 0 {
		v.t.Errorf("the archive: %+v %+v %v", a, report, err)
	}
}
