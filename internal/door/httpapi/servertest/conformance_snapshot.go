package servertest

import (
	"slices"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// snapshotVerbs: an engine either keeps memory, or says that it cannot and
// changes nothing.
func snapshotVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "einstein")
	if got := Must(n.Computers.Resume(ctx, "einstein", ""))(t); got.State != holt.ComputerRunning {
		t.Errorf("resumed while it runs: %s", got.State)
	}
	for _, ref := range []string{"snap_aaaaaaaaaaaaaaaa", "nowhere"} {
		_, err := n.Snapshots.Get(ctx, ref)
		WantCode(t, err, holt.NotFound)
		_, err = n.Snapshots.Delete(ctx, ref, "")
		WantCode(t, err, holt.NotFound)
		_, err = n.Snapshots.Fork(ctx, ref, holt.ComputerForkSpec{}, "")
		WantCode(t, err, holt.NotFound)
		_, err = n.Snapshots.Restore(ctx, ref, holt.SnapshotRestoreSpec{}, "")
		WantCode(t, err, holt.NotFound)
	}
	d := Must(n.Snapshots.Diff(ctx, "einstein", string(c.ID)))(t)
	if d.From.Computer != "einstein" || d.To.Workspace != "einstein" || d.Files.Counts.Total() != 0 || d.Files.Changes == nil || len(d.Packages.Changes) != 0 {
		t.Errorf("a computer differs from itself: %+v", d)
	}
	for _, ref := range []string{"nowhere", "snap_aaaaaaaaaaaaaaaa", "einstein@nowhere"} {
		_, err := n.Snapshots.Diff(ctx, "einstein", ref)
		WantCode(t, err, holt.NotFound)
	}
	if all := Must(n.Snapshots.List(ctx, ""))(t); len(all) != 0 {
		t.Errorf("snapshots: %+v", all)
	}
	_, err := n.Snapshots.List(ctx, "nowhere")
	WantCode(t, err, holt.NotFound)
	kept, err := n.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "dawn"}, "snap")
	if holt.CodeOf(err) == holt.Unsupported {
		_, err = n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{}, "")
		WantCode(t, err, holt.Unsupported)
		_, err = n.Computers.Pause(ctx, "einstein", "")
		WantCode(t, err, holt.Unsupported)
		if got := Must(n.Computers.Get(ctx, "einstein"))(t); got.State != holt.ComputerRunning {
			t.Errorf("after what is not supported: %s", got.State)
		}
		return
	}
	if again := Must(n.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "dawn"}, "snap"))(t); again.ID != kept.ID || kept.ComputerID != c.ID {
		t.Errorf("a repeated snapshot: %+v, the first %+v", again, kept)
	}
	_, err = n.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "dawn"}, "")
	WantCode(t, err, holt.AlreadyExists)
	restoreSnapshots(t, n, kept)
	forkSnapshots(t, n, kept)
	for range 2 { // the second changes nothing
		if got := Must(n.Computers.Pause(ctx, "einstein", ""))(t); got.State != holt.ComputerPaused {
			t.Errorf("paused: %s", got.State)
		}
	}
	if got := Must(n.Computers.Resume(ctx, "einstein", ""))(t); got.State != holt.ComputerRunning {
		t.Errorf("resumed: %s", got.State)
	}
	Must(n.Computers.Pause(ctx, "einstein", ""))(t)
	for range 2 { // so does start
		if got := Must(n.Computers.Start(ctx, "einstein", ""))(t); got.State != holt.ComputerRunning {
			t.Errorf("started: %s", got.State)
		}
	}
	deleteRelated(t, n)
}

// deleteRelated: a computer's snapshots go with it and its forks go on, and both are named.
func deleteRelated(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	dusk := Must(n.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "dusk"}, ""))(t)
	gone := Must(n.Computers.Delete(ctx, "einstein", "delete-einstein"))(t)
	var forks []string
	for _, one := range gone.Forks {
		forks = append(forks, one.Name)
	}
	if !slices.Equal(forks, []string{"older", "try-1", "try-2"}) || !slices.Contains(gone.Snapshots, holt.NamedSnapshot{ID: dusk.ID, Name: "dusk"}) {
		t.Errorf("deleted with it: %+v", gone)
	}
	if again := Must(n.Computers.Delete(ctx, "einstein", "delete-einstein"))(t); len(again.Snapshots) != len(gone.Snapshots) || len(again.Forks) != 3 {
		t.Errorf("a repeated delete: %+v, the first %+v", again, gone)
	}
	if all := Must(n.Snapshots.List(ctx, ""))(t); slices.ContainsFunc(all, func(m holt.Snapshot) bool { return m.ComputerID == dusk.ComputerID }) {
		t.Errorf("snapshots of a computer that is gone: %+v", all)
	}
	if got := Must(n.Computers.Get(ctx, "older"))(t); got.State != holt.ComputerRunning || got.Parent == nil || got.Parent.Name != "" || got.Parent.Was != "einstein" {
		t.Errorf("a fork of a computer that is gone: %+v", got)
	}
}

// restoreSnapshots leaves einstein where it was.
func restoreSnapshots(t *testing.T, n nouns.Set, kept holt.Snapshot) {
	ctx := t.Context()
	newComputer(t, n, "bohr")
	_, err := n.Snapshots.Restore(ctx, "bohr@dawn", holt.SnapshotRestoreSpec{}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Snapshots.Delete(ctx, "bohr@"+string(kept.ID), "")
	WantCode(t, err, holt.NotFound)
	if got := Must(n.Snapshots.Get(ctx, "einstein@dawn"))(t); got.ID != kept.ID {
		t.Errorf("got %+v", got)
	}
	if got := Must(n.Snapshots.Get(ctx, string(kept.ComputerID)+"@"+string(kept.ID)))(t); got.ID != kept.ID {
		t.Errorf("got %+v", got)
	}
	_, err = n.Snapshots.Restore(ctx, "dawn", holt.SnapshotRestoreSpec{Name: "dawn"}, "")
	WantCode(t, err, holt.AlreadyExists)
	_, err = n.Snapshots.Restore(ctx, "nobody@dawn", holt.SnapshotRestoreSpec{}, "")
	WantCode(t, err, holt.NotFound)
	back := Must(n.Snapshots.Restore(ctx, "einstein@dawn", holt.SnapshotRestoreSpec{}, "back"))(t)
	if back.Computer.ID != kept.ComputerID || back.Computer.LastSnapshot != kept.ID || back.Computer.State != holt.ComputerRunning ||
		back.Present.Kind != holt.SnapshotManual || back.Present.Parent != kept.ID {
		t.Errorf("restored: %+v", back)
	}
	if again := Must(n.Snapshots.Restore(ctx, "einstein@dawn", holt.SnapshotRestoreSpec{}, "back"))(t); again.Present.ID != back.Present.ID {
		t.Errorf("a repeated restore: %+v, the first %+v", again, back)
	}
	forth := Must(n.Snapshots.Restore(ctx, back.Present.Name, holt.SnapshotRestoreSpec{Name: "dusk"}, ""))(t)
	if forth.Present.Name != "dusk" || forth.Computer.LastSnapshot != back.Present.ID {
		t.Errorf("restored what it was: %+v", forth)
	}
	for _, m := range []holt.Snapshot{back.Present, forth.Present} {
		Must(n.Snapshots.Delete(ctx, string(m.ID), ""))(t)
	}
	if gone := Must(n.Computers.Delete(ctx, "bohr", ""))(t); len(gone.Snapshots) > 0 || len(gone.Forks) > 0 {
		t.Errorf("deleted with it: %+v", gone)
	}
}

func forkSnapshots(t *testing.T, n nouns.Set, kept holt.Snapshot) {
	ctx := t.Context()
	two := Must(n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Count: 2, Name: "try"}, "fork"))(t)
	if len(two.Computers) != 2 || two.Computers[0].Name != "try-1" || two.Computers[1].Error != nil || two.Snapshot == kept.ID {
		t.Fatalf("forked: %+v", two)
	}
	if got := Must(n.Computers.Get(ctx, "try-2"))(t); got.ID != two.Computers[1].ID || got.State != holt.ComputerRunning ||
		got.Parent == nil || got.Parent.ID != kept.ComputerID || got.Parent.Snapshot != two.Snapshot {
		t.Errorf("a fork: %+v", got)
	}
	older := Must(n.Snapshots.Fork(ctx, "dawn", holt.ComputerForkSpec{Name: "older"}, ""))(t)
	if len(older.Computers) != 1 || older.Snapshot != kept.ID {
		t.Errorf("forked a snapshot: %+v", older)
	}
	_, err := n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{At: "dawn", Name: "older"}, "")
	WantCode(t, err, holt.AlreadyExists)
	if all := Must(n.Snapshots.List(ctx, "einstein"))(t); len(all) != 2 || all[0].ID != kept.ID {
		t.Errorf("snapshots: %+v", all)
	}
	if got := Must(n.Snapshots.Get(ctx, string(kept.ID)))(t); len(got.Forks) != 1 || got.Forks[0].Name != "older" {
		t.Errorf("snapshot: %+v", got)
	}
	freed := Must(n.Snapshots.Delete(ctx, "dawn", "delete"))(t)
	if freed.Bytes <= 0 || len(freed.Forks) != 1 {
		t.Errorf("freed: %+v", freed)
	}
	if got := Must(n.Computers.Get(ctx, "older"))(t); got.State != holt.ComputerRunning {
		t.Errorf("after its snapshot is gone: %+v", got)
	}
}
