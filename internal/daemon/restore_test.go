package daemon_test

import (
	"os"
	"slices"
	"strings"

	"holt"
)

// late takes a snapshot of a computer, and has something in its memory, on its root disk
// and in its workspace that was not there then.
func (v *vm) late(computer, name string) holt.Snapshot {
	v.t.Helper()
	v.says(computer, "rm -f "+lateFiles)
	m, err := v.Computers.Snapshot(v.t.Context(), computer, holt.SnapshotSpec{Name: name}, "")
	if err != nil {
		v.t.Fatal(err)
	}
	v.says(computer, "for f in "+lateFiles+"; do echo late > $f; done; sync")
	return m
}

const lateFiles = "/run/late /root/late /home/agent/late"

// lates is how much of that is there.
func (v *vm) lates(computer string) string {
	v.t.Helper()
	return v.says(computer, "ls "+lateFiles+" 2>/dev/null | wc -l")
}

// isBack fails the test unless a computer has been restored to the snapshot of a name, once.
func (v *vm) isBack(computer, name, point string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	if said := v.lates(computer); said != "0" {
		t.Errorf("%s: of what came later %s is there", point, said)
	}
	c, err := v.Computers.Get(ctx, computer)
	if err != nil || c.State != holt.ComputerRunning {
		t.Errorf("%s: %+v %v", point, c, err)
	}
	snapshots, err := v.Snapshots.List(ctx, computer)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	in := []string{c.Workspace}
	for _, m := range snapshots {
		if m.Name == name && m.ID != c.LastSnapshot {
			t.Errorf("%s: it went on from %s, not %+v", point, c.LastSnapshot, m)
		}
		if m.Name != "" {
			named = append(named, m.Name)
		}
		in = append(in, m.Workspace)
	}
	slices.Sort(named)
	if !slices.Equal(named, []string{"before-restore", name}) {
		t.Errorf("%s: there are the snapshots %q", point, named)
	}
	slices.Sort(in)
	entries(t, v.dir, "workspaces", len(slices.Compact(in)))
}

// restoresNot: a restore that finds no room at some step leaves the computer as it was,
// and nothing else; one that nothing keeps from it does not.
func (v *vm) restoresNot(computer string, points []string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	then := v.late(computer, "then")
	before := v.lists()
	for _, point := range points {
		v.kill()
		v.again(full + point)
		_, err := v.Snapshots.Restore(ctx, string(then.ID), holt.SnapshotRestoreSpec{}, "")
		if holt.CodeOf(err) != holt.OutOfSpace {
			t.Errorf("%s: %v", point, err)
		}
		if said := v.lates(computer); said != "3" {
			t.Errorf("%s: of what came later %s is there", point, said)
		}
		if now := v.lists(); !slices.Equal(now, before) {
			t.Errorf("%s: there is %q, and was %q", point, now, before)
		}
	}
	v.kill()
	v.again("")
	if _, err := v.Snapshots.Delete(ctx, string(then.ID), ""); err != nil {
		t.Error(err)
	}
}

// restoresNeither: a computer for which there is no machine, neither at the snapshot nor as it
// was, stays paused at its present, and the next daemon does not take it back.
func (v *vm) restoresNeither(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	then := v.late(computer, "then")
	before := namesIn(t, v.dir+"/workspaces")
	v.kill()
	v.again(full + "resume/machine")
	_, err := v.Snapshots.Restore(ctx, string(then.ID), holt.SnapshotRestoreSpec{}, "")
	if holt.CodeOf(err) != holt.OutOfSpace || !strings.Contains(err.Error(), "stays paused at the snapshot before-restore") {
		t.Errorf("no machine: %v", err)
	}
	v.kill()
	v.again("")
	if said := v.lates(computer); said != "3" { // which lets it go on
		t.Errorf("of what came later %s is there", said)
	}
	if now := namesIn(t, v.dir+"/workspaces"); !slices.Equal(now, before) {
		t.Errorf("there is %q, and was %q", now, before)
	}
	for _, ref := range []string{"before-restore", string(then.ID)} {
		if _, err := v.Snapshots.Delete(ctx, ref, ""); err != nil {
			t.Error(err)
		}
	}
}

// lists are all snapshots, and all directories of workspaces and root disks but those that change
// with each machine.
func (v *vm) lists() (all []string) {
	v.t.Helper()
	snapshots, err := v.Snapshots.List(v.t.Context(), "")
	if err != nil {
		v.t.Fatal(err)
	}
	for _, m := range snapshots {
		all = append(all, string(m.ID), m.Name)
	}
	return append(all, namesIn(v.t, v.dir+"/workspaces")...)
}

// restoresUnrun: a computer that is paused goes back, with what was changed beside its guest
// kept, and so does one that is stopped, of which there is no memory to keep.
func (v *vm) restoresUnrun(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	then := v.late(computer, "then")
	restore := func(ref string, state holt.ComputerState, lates string) holt.Snapshot {
		t.Helper()
		back, err := v.Snapshots.Restore(ctx, computer+"@"+ref, holt.SnapshotRestoreSpec{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if back.Computer.State != state {
			t.Errorf("restored to %s: %+v", ref, back.Computer)
		}
		if said := v.lates(computer); said != lates { // which starts it
			t.Errorf("at %s: of what came later %s is there", ref, said)
		}
		return back.Present
	}
	paused, err := v.Computers.Pause(ctx, computer, "")
	if err != nil {
		t.Fatal(err)
	}
	p := restore("then", holt.ComputerRunning, "0")
	if p.ID != paused.Snapshot || p.Kind != holt.SnapshotManual || p.Name != "before-restore" {
		t.Errorf("the present of a paused computer: %+v", p)
	}
	if _, err := v.Computers.Pause(ctx, computer, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.WorkspaceFiles.Write(ctx, computer, "/beside", holt.WriteSpec{}, strings.NewReader("written while paused")); err != nil {
		t.Fatal(err)
	}
	q := restore(string(p.ID), holt.ComputerRunning, "3")
	restore(string(q.ID), holt.ComputerRunning, "0")
	v.until(computer, "cat beside", "written while paused")

	v.says(computer, "for f in "+lateFiles+"; do echo late > $f; done; sync")
	if _, err := v.Computers.Stop(ctx, computer, ""); err != nil {
		t.Fatal(err)
	}
	s := restore("then", holt.ComputerRunning, "0")
	if !s.Stopped || s.Bytes != 0 {
		t.Errorf("the present of a stopped computer: %+v", s)
	}
	restore(string(s.ID), holt.ComputerStopped, "2") // all but memory
	if said := v.says(computer, "cat beside; cat /root/disk"); said != "written while pausedkept" {
		t.Errorf("at a snapshot without memory: %q", said)
	}
	if os.Getenv("HOLT_SOAK") != "" {
		v.forkUnrun(computer, s)
	}
	restore(string(then.ID), holt.ComputerRunning, "0")
}

// forkUnrun: a fork of a snapshot without memory boots, and is itself.
func (v *vm) forkUnrun(computer string, m holt.Snapshot) {
	t := v.t
	t.Helper()
	if _, err := v.Snapshots.Fork(t.Context(), string(m.ID), holt.ComputerForkSpec{Name: "booted"}, ""); err != nil {
		t.Fatal(err)
	}
	if said := v.says("booted", "hostname; ls "+lateFiles+" 2>/dev/null | wc -l"); said != "booted\n2" {
		t.Errorf("a fork without memory: %q", said)
	}
	if v.says("booted", "cat /etc/machine-id") == v.says(computer, "cat /etc/machine-id") {
		t.Error("a fork without memory has its parent's machine id")
	}
	v.remove("booted")
}

// restores takes a computer back while all goes on in it, and forth again. It returns how far its
// counter is.
func (v *vm) restores(computer, other string, least int) int {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	start := func(command string) holt.Run {
		t.Helper()
		r, err := v.Runs.Start(ctx, computer, holt.RunSpec{Command: holt.OSString(command)}, "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	early := start("exec sleep 100000")
	v.says(computer, "echo then > mine")
	was, err := v.Computers.Get(ctx, computer)
	if err != nil {
		t.Fatal(err)
	}
	machine := v.says(computer, "cat /etc/machine-id")
	dawn := v.late(computer, "dawn")
	v.copies(computer, "dawn")
	if err := v.Runs.Signal(ctx, early.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	v.ends(early.ID, holt.RunExited)
	if _, err := v.Terminals.Close(ctx, computer, "main", ""); err != nil {
		t.Fatal(err)
	}
	v.says(computer, "echo late > mine")
	changed, err := v.Runs.List(ctx, computer, "", 1)
	if err != nil || len(changed) != 1 {
		t.Fatal(changed, err)
	}
	open := start("exec sleep 100000")

	v.restoresRefused(computer, other, dawn)
	back, err := v.Snapshots.Restore(ctx, computer+"@dawn", holt.SnapshotRestoreSpec{}, "back")
	if err != nil {
		t.Fatal(err)
	}
	if c := back.Computer; c.ID != was.ID || c.Workspace != was.Workspace || c.State != holt.ComputerRunning || c.LastSnapshot != dawn.ID {
		t.Errorf("restored: %+v", c)
	}
	present := back.Present
	if present.Name != "before-restore" || present.Parent != dawn.ID || present.Workspace != was.Workspace+"-before-restore" {
		t.Errorf("its present: %+v", present)
	}
	if again, err := v.Snapshots.Restore(ctx, computer+"@dawn", holt.SnapshotRestoreSpec{}, "back"); err != nil || again.Present.ID != present.ID {
		t.Errorf("the same again: %+v %v", again, err)
	}
	if said := v.says(computer, "cat mine /etc/hostname /etc/machine-id"); said != "then\n"+computer+"\n"+machine || v.lates(computer) != "0" {
		t.Errorf("it says %q", said)
	}
	v.cut(computer)
	least = v.whole(computer, least) // its terminal, too, is there again
	v.clock(computer)
	v.ends(open.ID, holt.RunLost)
	if r, err := v.Runs.Get(ctx, early.ID); err != nil || r.State != holt.RunRunning || r.EndedAt != nil {
		t.Errorf("what ran then: %+v %v", r, err)
	}
	if r, err := v.Runs.Receipt(ctx, changed[0].ID); err != nil || r.Counts.Total() == 0 {
		t.Errorf("what was changed later is forgotten: %+v %v", r, err)
	}
	return v.restoresBack(computer, dawn, present, open, least)
}

// restoresRefused: what cannot be restored is refused before anything is done.
func (v *vm) restoresRefused(computer, other string, dawn holt.Snapshot) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	dir := t.TempDir()
	if _, err := v.Workspaces.Mount(ctx, computer, holt.MountSpec{Dir: dir, ReadOnly: true}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Snapshots.Restore(ctx, string(dawn.ID), holt.SnapshotRestoreSpec{}, ""); holt.CodeOf(err) != holt.Conflict || !strings.Contains(err.Error(), dir) {
		t.Errorf("while the host has it mounted: %v", err)
	}
	if err := v.Workspaces.Unmount(ctx, dir, ""); err != nil {
		t.Fatal(err)
	}
	_, err := v.Snapshots.Restore(ctx, other+"@dawn", holt.SnapshotRestoreSpec{}, "")
	if holt.CodeOf(err) != holt.NotFound {
		t.Errorf("another computer's: %v", err)
	}
}

// restoresBack undoes a restore, and deletes what is left of both.
func (v *vm) restoresBack(computer string, dawn, present holt.Snapshot, open holt.Run, least int) int {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "thief", Workspace: present.Workspace}, ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("a workspace with snapshots was given away: %v", err)
	}
	if err := v.Workspaces.Delete(ctx, present.Workspace, ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("a workspace with snapshots was deleted: %v", err)
	}
	if d, err := v.Snapshots.Diff(ctx, string(dawn.ID), string(present.ID)); err != nil || d.Files.Counts.Total() == 0 {
		t.Errorf("what is different: %+v %v", d.Files, err)
	}
	if _, err := v.Computers.Fork(ctx, computer, holt.ComputerForkSpec{At: present.Name, Name: "beside"}, ""); err != nil {
		t.Fatal(err)
	}
	if said := v.lates("beside"); said != "3" {
		t.Errorf("forked from its present: of what came later %s is there", said)
	}
	v.remove("beside")
	forth, err := v.Snapshots.Restore(ctx, present.Name, holt.SnapshotRestoreSpec{Name: "there"}, "")
	if err != nil || forth.Present.Name != "there" || forth.Computer.LastSnapshot != present.ID {
		t.Fatalf("%+v %v", forth, err)
	}
	v.copies("dawn", computer) // it had not been looked at since
	v.cut(computer)
	if said := v.says(computer, "cat mine"); said != "late" || v.lates(computer) != "3" {
		t.Errorf("it says %q", said)
	}
	if r, err := v.Runs.Get(ctx, open.ID); err != nil || r.State != holt.RunRunning {
		t.Errorf("what ran in its present: %+v %v", r, err)
	}
	freed, err := v.Snapshots.Delete(ctx, "there", "")
	if err != nil || freed.Workspace != forth.Present.Workspace {
		t.Errorf("%+v %v", freed, err)
	}
	for _, id := range []holt.SnapshotID{present.ID, dawn.ID} {
		if _, err := v.Snapshots.Delete(ctx, string(id), ""); err != nil {
			t.Error(err)
		}
	}
	v.sit(computer)
	return v.goesOn(computer, least)
}

// ends waits until a run is in a state.
func (v *vm) ends(id holt.RunID, want holt.RunState) (r holt.Run) {
	v.t.Helper()
	within(v.t, "a run to be "+string(want), func() bool {
		var err error
		if r, err = v.Runs.Get(v.t.Context(), id); err != nil {
			v.t.Fatal(err)
		}
		return r.State == want
	})
	return r
}
