package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"holt"
)

// illSnapshot is how long what keeps, makes or ends a machine is waited for.
const illSnapshot = time.Minute

// TestHostileSnapshots: a real machine whose agent has been replaced by one that lies is kept, compared, forked, merged
// back, restored, paused and resumed. HOLT_SEED says with which lies.
func TestHostileSnapshots(t *testing.T) {
	i, seed := newIll(t, vmHome(t))
	i.computers = 1
	program := hostileProgram(t)
	i.again("")
	mallory, began := i.makes()
	if _, err := i.Files.Write(t.Context(), "mallory", "/usr/local/bin/hostile", holt.WriteSpec{Mode: 0o755}, bytes.NewReader(program)); err != nil {
		t.Fatal(err)
	}
	end := i.watch()
	i.start("liar", seed)
	i.snapshots()
	i.tells()
	end()
	i.fits(mallory.ID, time.Since(began))
	i.goes()
	i.close(seed)
	endAll(t, i.process)
}

// snapshots has it be kept, compared, forked, merged back and taken back while it lies, and has a job be run by one like it.
// What it says may make any of these fail, but not hang, and not leave what was being made.
func (i *ill) snapshots() {
	const it, twin = "mallory", "twin"
	made := false
	latest := func(ctx context.Context) (string, error) {
		list, err := i.Snapshots.List(ctx, it)
		if err == nil && len(list) == 0 {
			err = errEnough
		}
		if err != nil {
			return "", err
		}
		return string(list[len(list)-1].ID), nil
	}
	for range i.seconds / 5 {
		i.does("job and its outputs", i.job)
		i.does("snapshot", func(ctx context.Context) error {
			_, err := i.Computers.Snapshot(ctx, it, holt.SnapshotSpec{}, "")
			return err
		})
		i.does("diff", func(ctx context.Context) error { return i.differs(ctx, it, it) })
		i.does("diff of a snapshot", func(ctx context.Context) error {
			snapshot, err := latest(ctx)
			if err != nil {
				return err
			}
			return i.differs(ctx, snapshot, it)
		})
		made = false
		for n := 0; n < 4 && !made; n++ { // until it says rightly who the fork is
			i.does("fork", func(ctx context.Context) error {
				forks, err := i.Computers.Fork(ctx, it, holt.ComputerForkSpec{Name: twin}, "")
				for _, one := range forks.Computers {
					if made = one.Error == nil; !made {
						err = errors.Join(err, one.Error)
					}
				}
				return err
			})
		}
		if made {
			i.does("diff of its fork", func(ctx context.Context) error { return i.differs(ctx, twin, it) })
			i.does("write in its fork", func(ctx context.Context) error {
				_, err := i.WorkspaceFiles.Write(ctx, twin, "/of-the-fork", holt.WriteSpec{}, strings.NewReader("x"))
				return err
			})
			i.does("merge of its fork", func(ctx context.Context) error {
				_, err := i.Workspaces.Merge(ctx, it, holt.MergeSpec{From: twin}, "")
				return err
			})
		}
		i.does("delete of its fork", func(ctx context.Context) error {
			_, err := i.Computers.Delete(ctx, twin, "")
			if holt.CodeOf(err) == holt.NotFound && !made {
				err = nil
			}
			return err
		})
		i.does("restore", func(ctx context.Context) error {
			snapshot, err := latest(ctx)
			if err == nil {
				_, err = i.Snapshots.Restore(ctx, snapshot, holt.SnapshotRestoreSpec{}, "")
			}
			return err
		})
	}
	i.does("pause", func(ctx context.Context) error { _, err := i.Computers.Pause(ctx, it, ""); return err })
	i.does("resume", func(ctx context.Context) error { _, err := i.Computers.Resume(ctx, it, ""); return err })
}

// does is one verb, and what came of it.
func (i *ill) does(name string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(i.t.Context(), illSnapshot)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	i.t.Logf("%s: %v, after %v", name, err, time.Since(began).Round(time.Millisecond))
	if err != nil {
		i.saw("why "+name+" fails", []byte(err.Error()))
	}
	i.counted(name, began, illSnapshot, err)
}

// job runs one, takes what it left, and removes it.
func (i *ill) job(ctx context.Context) error {
	j, err := i.Jobs.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}}, "")
	if err != nil {
		return err
	}
	var heard scanned
	err = i.Jobs.Follow(ctx, j.ID, 0, func(e holt.RunEvent) error { _, err := heard.Write(e.Data); return err })
	if err == nil {
		err = i.Jobs.Outputs(ctx, j.ID, io.Writer(&heard))
	}
	i.saw("what a job says", heard.b)
	late := i.t.Context()
	_, no := i.Jobs.Cancel(late, j.ID, "")
	for end := time.Now().Add(illPatient); holt.CodeOf(no) == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if j, no = i.Jobs.Get(late, j.ID); no == nil && j.State.Ended() {
			no = i.Jobs.Delete(late, j.ID, "")
			break
		}
	}
	return errors.Join(err, no)
}

// differs compares two of them; what comes is bounded, whatever they say of themselves.
func (i *ill) differs(ctx context.Context, from, to string) error {
	d, err := i.Snapshots.Diff(ctx, from, to)
	if err != nil {
		return err
	}
	var heard scanned
	tell(&heard, d)
	i.saw("a diff", heard.b)
	const most = 1000
	if len(d.Files.Changes) > most || len(d.Packages.Changes) > most || len(d.Processes.Gone) > most || len(d.Processes.Came) > most ||
		len(d.Ports.Gone) > most || len(d.Ports.Came) > most || len(d.RootFiles.Changes) > most || len(d.RootFiles.Unread) > most {
		i.t.Errorf("a diff has more than %d differences of a kind", most)
	}
	why := d.From.Unlisted + d.To.Unlisted + d.RootFiles.Unlisted
	if strings.ContainsFunc(why, unicode.IsControl) || len(why) > 1<<16 {
		i.t.Errorf("a diff was not made: %.300q", why)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := illListed
	if d.Unlisted {
		kind = "diffs without what was listed"
	}
	i.tried[kind]++
	i.tried["things that diffs left out"] += d.Omitted
	return nil
}

// TestHostileInventory: what is installed and runs in a computer is told without end, by items or none, at once or
// slowly, in all ways at once: each comparison ends by a limit of its own, whatever its caller's patience, and
// memory is bounded.
func TestHostileInventory(t *testing.T) {
	i, seed := newIll(t, home(t))
	i.computers = 1
	setenv(t, envGuest, hostileFile(t, hostileProgram(t), "hoard", seed, i.canary, i.secret))
	i.again("")
	mallory, began := i.makes()
	end := i.watch()
	var asking sync.WaitGroup
	diff := func(ctx context.Context) error { return i.differs(ctx, "mallory", "mallory") }
	i.does("diff of giants", diff)
	for range 8 {
		asking.Go(func() { i.does("diff", diff) })
	}
	asking.Wait()
	told := map[string]int{}
	for n := 0; n < 50 && (!i.has(illListed) || missing(told) != ""); n++ { // until it has told all, and something of both sides
		i.does("diff", diff)
		told = lastTried(i.console())
	}
	i.tells()
	end()
	if kind := missing(i.tried); kind != "" {
		t.Errorf("no inventory of %s", kind)
	}
	if !i.has(illListed) {
		t.Error("no diff lists anything")
	}
	i.fits(mallory.ID, time.Since(began))
	i.goes()
	i.close(seed)
	endAll(t, i.process)
}

// has says whether something was tried at least once.
func (i *ill) has(kind string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tried[kind] > 0
}

// missing is a kind of inventory that was not told.
func missing(tried map[string]int) string {
	for _, kind := range illInventories {
		if tried["inventories: "+kind] == 0 {
			return kind
		}
	}
	return ""
}

// illListed counts the diffs for which both sides were listed.
const illListed = "diffs with what was listed"

// illInventories are the kinds that the program tells by turns.
var illInventories = []string{"items without end", "items of nothing", "one by one", "long names", "all of each", "a lie"}
