package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/client"
)

// TestKilledInSnapshots kills a daemon at steps of snapshot, fork, pause, resume, restore and the merge of disks: the
// repeated call finishes it with the next daemon, and nothing is lost or left.
func TestKilledInSnapshots(t *testing.T) {
	points := []string{"pause/held", "fork/settle 3", "present/ready"}
	full := []string{"resume/agent"}
	if os.Getenv("HOLT_SOAK") != "" {
		points, full = nil, append(full, "restore/workspace", "present/memory", "restore/swap")
		for verb, steps := range map[string]string{
			"snapshot": "row memory held ready", "pause": "row memory held ready", "resume": "row disk open machine run",
			"fork-snapshot": "row memory held ready", "fork": "row workspace snapshots disk open machine agent settle",
			"restore": "row disk workspace present swap go", "present": "row memory held ready", "resumed": "row disk open machine run agent",
			"flatten": "disk row",
		} {
			for _, step := range strings.Fields(steps) {
				points = append(points, verb+"/"+step)
			}
		}
		points = append(points, "fork/settle 3")
	}
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	if _, err := v.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie", MemoryMB: 256}, ""); err != nil {
		t.Fatal(err)
	}
	v.says("curie", "mkfifo hold; (read x < hold; echo $x > released) > /dev/null 2>&1 & echo kept > /run/memory; echo kept > /root/disk")
	v.putAway("curie")
	v.flatOut("curie")
	v.rolls("curie")
	for _, point := range points {
		verb, step, _ := strings.Cut(point, "/")
		at := point
		switch verb {
		case "present":
			verb = "restore"
		case "resumed": // of what is restored
			verb, at = "restore", "resume/"+step
		}
		v.killedAt(at, verb, point)
	}
	v.forksSome("curie")
	v.restoresNot("curie", full)
	v.restoresNeither("curie")
	v.restoresUnrun("curie")
	v.says("curie", "echo on > hold")
	v.until("curie", "cat released 2>/dev/null || true", "on")
	if _, err := v.Computers.Delete(t.Context(), "curie", ""); err != nil {
		t.Error(err)
	}
	v.nothingKept()
	endAll(t, v.process)
	t.Logf("counts: a daemon was killed at %d points, and found no room at %d", len(points), len(full))
}

// flat changes 64 MiB of memory and writes files of 1 MiB as fast as it can; each holds one number only.
const flat = `
import os
if os.fork() == 0:
    b, n = bytearray(64 << 20), 0
    while True:
        n += 1
        b[::4096] = bytes([n % 256]) * (len(b) // 4096)
n = 0
while True:
    n += 1
    with open('flat.new', 'w') as f: f.write(('%07d\n' % n) * 131072)
    os.rename('flat.new', 'flat')
`

// flatOut snapshots and forks a computer whose guest changes memory and files as fast as it can:
// it goes on, and so does the fork, from files that are whole.
func (v *vm) flatOut(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	r, err := v.Runs.Start(ctx, computer, holt.RunSpec{Argv: holt.OSStrings{"python3", "-c", flat}, User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	const number = "until [ -e flat ]; do sleep 0.1; done; cat flat > seen; sort -u seen"
	before := v.says(computer, number)
	m, err := v.Computers.Snapshot(ctx, computer, holt.SnapshotSpec{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Snapshots.Fork(ctx, string(m.ID), holt.ComputerForkSpec{Name: "flat-out"}, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{computer, "flat-out"} {
		v.clock(name)
		last := before
		for i := range 2 {
			now := v.says(name, number)
			if strings.Contains(now, "\n") || now < last || i > 0 && now == last {
				t.Errorf("%s: its file holds %q after %q", name, now, last)
			}
			last = now
			v.says(name, "until [ $(head -n 1 flat) != "+now+" ]; do sleep 0.1; done")
		}
	}
	const most = 5000 // many times of what it is on a busy host
	if m.PauseMS > most {
		t.Errorf("written and changed flat out, its guest stood for %.0f ms", m.PauseMS)
	}
	t.Logf("counts: written and changed flat out, its guest stood for %.0f ms", m.PauseMS)
	if _, err := v.Computers.Delete(ctx, "flat-out", ""); err != nil {
		t.Error(err)
	}
	if _, err := v.Snapshots.Delete(ctx, string(m.ID), ""); err != nil {
		t.Error(err)
	}
	if err := v.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
		t.Error(err)
	}
}

// killedAt has a verb cut off at a point, and repeated with the same key.
func (v *vm) killedAt(point, verb, key string) {
	t, ctx := v.t, context.Background()
	t.Helper()
	if verb == "resume" {
		if _, err := v.Computers.Pause(ctx, "curie", ""); err != nil {
			t.Fatal(point, err)
		}
	}
	if verb == "restore" {
		v.late("curie", "then")
	}
	if verb == "flatten" { // a disk that nothing needs but the next
		m, err := v.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{}, "")
		if err == nil {
			_, err = v.Snapshots.Delete(ctx, string(m.ID), "")
		}
		if err != nil {
			t.Fatal(point, err)
		}
	}
	v.kill()
	v.again(point)
	done := make(chan error, 1)
	caller := connect(t, v.dir)
	go func() { done <- v.act(ctx, caller, verb, key) }()
	v.dies(point)
	if strings.HasSuffix(point, "/held") { // its clock stands meanwhile
		time.Sleep(2 * time.Second)
	}
	v.again("")
	if err := <-done; err != nil {
		t.Errorf("%s: the repeated call: %v", point, err)
	}
	if verb == "pause" {
		if c, err := v.Computers.Get(ctx, "curie"); err != nil || c.State != holt.ComputerPaused {
			t.Errorf("%s: %+v %v", point, c, err)
		}
	}
	v.clock("curie")
	const kept = "cat /run/memory /root/disk" // of memory, and of the disk that was frozen
	if said := v.says("curie", kept); said != "kept\nkept" {
		t.Errorf("%s: %q", point, said)
	}
	if verb == "restore" {
		v.isBack("curie", "then", point)
	}
	all, err := v.Computers.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	of := map[holt.SnapshotID]bool{}
	for _, c := range all {
		if c.Name == "curie" {
			continue
		}
		if said := v.says(c.Name, kept); said != "kept\nkept" || !strings.HasPrefix(verb, "fork") {
			t.Errorf("%s: %+v says %q", point, c, said)
		}
		of[c.Parent.Snapshot] = true
		if _, err := v.Computers.Delete(ctx, c.Name, ""); err != nil {
			t.Error(point, err)
		}
	}
	if forks := len(all) - 1; strings.HasPrefix(verb, "fork") && (forks != forksAt(point) || len(of) != 1) {
		t.Errorf("%s: %d forks, of snapshots %v", point, forks, of)
	}
	snapshots, err := v.Snapshots.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	entries(t, v.dir, "snapshots", len(snapshots))
	for _, m := range snapshots {
		if m.Kind == holt.SnapshotManual {
			if _, err := v.Snapshots.Delete(ctx, string(m.ID), ""); err != nil {
				t.Error(point, err)
			}
		}
	}
}

func (v *vm) act(ctx context.Context, c *client.Client, verb, key string) (err error) {
	switch verb {
	case "snapshot":
		_, err = c.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{Name: "kept"}, key)
	case "pause", "flatten": // which begins when it is paused
		_, err = c.Computers.Pause(ctx, "curie", key)
	case "resume":
		_, err = c.Computers.Resume(ctx, "curie", key)
	case "restore":
		_, err = c.Snapshots.Restore(ctx, "curie@then", holt.SnapshotRestoreSpec{}, key)
	default:
		_, err = c.Computers.Fork(ctx, "curie", holt.ComputerForkSpec{Count: forksAt(key)}, key)
	}
	return err
}

// forksAt is how many forks are made where a daemon is killed at a step: where that is one's
// third time there, some of them may be done.
func forksAt(point string) int {
	if strings.HasSuffix(point, " 3") {
		return 3
	}
	return 1
}

// forksSome: a fork that cannot be made keeps no other from being made, and leaves nothing.
func (v *vm) forksSome(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	workspaces := len(namesIn(t, filepath.Join(v.dir, "workspaces"))) // those that restores have left, too
	v.kill()
	v.again(once + "fork/machine")
	forked, err := v.Computers.Fork(ctx, computer, holt.ComputerForkSpec{Name: "some", Count: 3}, "")
	if err != nil || len(forked.Computers) != 3 {
		t.Fatalf("%+v %v", forked, err)
	}
	failed := 0
	for _, one := range forked.Computers {
		if one.Error != nil {
			if failed++; one.Error.Code != holt.OutOfSpace || !strings.HasPrefix(one.Name, "some-") || one.ID != "" {
				t.Errorf("%+v: %v", one, one.Error)
			}
			continue
		}
		v.says(one.Name, "true")
		if _, err := v.Computers.Delete(ctx, one.Name, ""); err != nil {
			t.Error(err)
		}
	}
	all, err := v.Computers.List(ctx)
	if err != nil || failed != 1 || len(all) != 1 {
		t.Errorf("%d of 3 forks failed, and there is %+v, %v", failed, all, err)
	}
	entries(t, v.dir, "computers", 1)
	entries(t, v.dir, "workspaces", workspaces)
}
