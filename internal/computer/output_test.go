package computer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/db"
)

func TestBetween(t *testing.T) {
	piece := func(offset int64, data string) holt.RunEvent {
		return holt.RunEvent{Kind: holt.RunStdout, Offset: offset, Data: []byte(data)}
	}
	gap := func(offset, n int64) holt.RunEvent {
		return holt.RunEvent{Kind: holt.RunGap, Offset: offset, Dropped: n}
	}
	all := []holt.RunEvent{gap(0, 10), piece(10, "abcde"), piece(15, "fgh")}
	for _, tt := range []struct {
		events   []holt.RunEvent
		from, to int64
		want     []holt.RunEvent
	}{
		{all, 0, 18, all},
		{all, 0, 30, append(slices.Clone(all), gap(18, 12))},
		{all, 12, 16, []holt.RunEvent{piece(12, "cde"), piece(15, "f")}},
		{all, 5, 11, []holt.RunEvent{gap(5, 5), piece(10, "a")}},
		{all, 2, 8, []holt.RunEvent{gap(2, 6)}},
		{all, 18, 18, nil},
		{all, 20, 18, nil},
		{nil, 3, 7, []holt.RunEvent{gap(3, 4)}},
		{nil, 0, 0, nil},
	} {
		if diff := cmp.Diff(tt.want, between(tt.events, tt.from, tt.to)); diff != "" {
			t.Errorf("from %d to %d: %s", tt.from, tt.to, diff)
		}
	}
}

// kept is the output of one computer's runs, in a directory of the test's.
type kept struct {
	outputs
	t   *testing.T
	id  holt.ComputerID
	dir string
}

func newKept(t *testing.T) kept {
	table, dir := openRuns(t), t.TempDir()
	return kept{t: t, id: "cmp_a", dir: filepath.Join(dir, outputDir), outputs: outputs{
		table: table, dir: func(holt.ComputerID) string { return dir }, most: 5 * diskBlock, log: table.log,
		failpoint: func(string) error { return nil },
	}}
}

// ran puts a run on record that wrote text, and keeps that.
func (k kept) ran(text string, state holt.RunState, ended time.Time) holt.Run {
	k.t.Helper()
	run := holt.Run{ID: holt.NewRunID(), ComputerID: k.id, State: state, StartedAt: ended.Add(-time.Second)}
	err := k.table.insert(k.t.Context(), run, nil)
	if err == nil && state != holt.RunRunning {
		err = k.table.d.Write(k.t.Context(), func(tx *db.Tx) error {
			return tx.Exec(`UPDATE run SET ended = ? WHERE id = ?`, ended.UnixNano(), run.ID)
		})
	}
	if err == nil {
		err = k.put(k.t.Context(), k.id, wrote(run, text))
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

func wrote(run holt.Run, text string) agent.RunOutput {
	out := agent.RunOutput{Run: run, End: int64(len(text))}
	if text != "" {
		out.Events = []holt.RunEvent{{Kind: holt.RunStdout, Data: []byte(text)}}
	}
	return out
}

// has fails the test unless this is what is there of a run's output.
func (k kept) has(run holt.Run, want string) {
	k.t.Helper()
	events, err := k.since(k.t.Context(), run, 0)
	got := ""
	for _, e := range events {
		if got += string(e.Data); e.Kind == holt.RunGap {
			got += fmt.Sprintf("<%d>", e.Dropped)
		}
	}
	if err != nil || got != want {
		k.t.Errorf("of %s there is %q, not %q; %v", run.ID, got, want, err)
	}
}

func (k kept) files(want int) {
	k.t.Helper()
	if entries, err := os.ReadDir(k.dir); err != nil || len(entries) != want {
		k.t.Errorf("%d files, not %d: %v %v", len(entries), want, entries, err)
	}
}

// TestOutputsAreBounded: of the output of one computer's runs that of those that ended first goes,
// and with a run's record its file.
func TestOutputsAreBounded(t *testing.T) {
	k, now := newKept(t), time.Now()
	going := k.ran("goes on", holt.RunRunning, now)
	var ran []holt.Run
	for i := range 6 {
		ran = append(ran, k.ran(fmt.Sprintf("output %d", i), holt.RunExited, now.Add(-time.Duration(i)*time.Minute)))
	}
	notAnswering := k.ran("", holt.RunExited, now)
	k.files(6)
	k.has(going, "goes on")
	k.has(ran[4], "output 4")
	k.has(ran[5], "<8>") // it ended earlier
	k.has(notAnswering, "")
	large := k.ran(strings.Repeat("x", 2*diskBlock), holt.RunExited, now.Add(time.Minute)) // with its header it takes 3
	k.files(4)
	k.has(ran[1], "output 1")
	k.has(ran[2], "<8>")

	// What a guest no longer has does not take the place of what was kept when it had.
	gap := wrote(large, "")
	gap.Events, gap.End = []holt.RunEvent{{Kind: holt.RunGap, Dropped: 2 * diskBlock}}, 2*diskBlock
	if err := k.put(t.Context(), k.id, gap); err != nil {
		t.Fatal(err)
	}
	k.has(large, strings.Repeat("x", 2*diskBlock))

	if err := k.table.forget(t.Context(), large.ID); err != nil {
		t.Fatal(err)
	}
	if err := k.put(t.Context(), k.id, wrote(large, "late")); err != nil {
		t.Fatal(err)
	}
	k.files(3)
	if err := k.put(t.Context(), k.id, wrote(holt.Run{ID: notAnswering.ID, State: holt.RunRunning}, "now")); err != nil { // and more may come
		t.Fatal(err)
	}
	if taken, err := k.table.taken(t.Context(), notAnswering.ID); err != nil || taken {
		t.Errorf("what came until now is taken for all: %v", err)
	}
	left, err := k.table.untaken(t.Context(), k.id, []holt.RunID{ran[0].ID, notAnswering.ID, going.ID, large.ID})
	if err != nil || !slices.Equal(left, []holt.RunID{notAnswering.ID}) {
		t.Errorf("to be taken: %v %v", left, err)
	}
}

// TestRevive: runs that have ended go on, and what is kept of running ones is dropped, only where a
// restore has taken their computer back to when they ran, once, and not because its guest says so.
func TestRevive(t *testing.T) {
	k, now := newKept(t), time.Now()
	err := k.table.d.Write(t.Context(), func(tx *db.Tx) error {
		return tx.Exec(`INSERT INTO computer (id, name, template, image, state, engine, cpus, memory_mb, disk_mb, workspace, workspace_name, owned, created)
			VALUES (?, 'a', '', '', 'running', '', 1, 1, 0, 'w', 'w', 1, 1)`, k.id)
	})
	if err != nil {
		t.Fatal(err)
	}
	old, ran := k.ran("old", holt.RunExited, now.Add(-time.Hour)), k.ran("ran", holt.RunExited, now)
	going := k.ran("goes on", holt.RunRunning, now)
	goesOn := func(want ...holt.RunID) {
		t.Helper()
		revived, err := k.table.reviveHere(t.Context(), k.id, []holt.RunID{old.ID, ran.ID, going.ID, "run_other"})
		slices.Sort(revived)
		slices.Sort(want)
		if err != nil || !slices.Equal(revived, want) {
			t.Errorf("gone on: %v, not %v; %v", revived, want, err)
		}
	}
	back := func() {
		t.Helper()
		b := &restoring{transition: transition{r: &record{Computer: holt.Computer{ID: k.id}}}}
		err := k.table.d.Write(t.Context(), func(tx *db.Tx) error {
			return b.wentBack(tx, snapshot{Snapshot: holt.Snapshot{CreatedAt: now.Add(-endSlack)}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	goesOn() // the guest says so
	back()
	goesOn(ran.ID, going.ID)
	goesOn()
	back()
	if err := k.table.loseAll(t.Context(), k.id, ""); err != nil { // its machine ended before it said anything
		t.Fatal(err)
	}
	goesOn()
	k.has(old, "old")
}

// TestOutputGoesWithItsRun: a run that is no longer on record leaves no file.
func TestOutputGoesWithItsRun(t *testing.T) {
	k, now := newKept(t), time.Now()
	k.table.keep = endedRuns{last: 2, young: time.Hour, most: 10}
	for i := range 2 {
		k.ran("old", holt.RunExited, now.Add(-48*time.Hour+time.Duration(i)))
	}
	run := k.ran("new", holt.RunRunning, now)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &runTracker{l: &live{id: k.id, runs: newRunSet(), log: k.log, ctx: ctx}, table: k.table, outputs: k.outputs}
	run.State = holt.RunExited
	a.exited(run)
	k.files(2)
	k.has(run, "new")
}

// TestTidyOutputs: a daemon finds what one before it left: a file without a row, one that was not
// finished, one that its row does not know, and one that lost power.
func TestTidyOutputs(t *testing.T) {
	k, now := newKept(t), time.Now()
	whole, bare, torn := k.ran("whole", holt.RunExited, now), k.ran("bare", holt.RunExited, now), k.ran("torn", holt.RunExited, now)
	for name, b := range map[string][]byte{string(torn.ID): {}, outputTemp: []byte("half"), string(holt.NewRunID()): []byte("left")} {
		if err := os.WriteFile(filepath.Join(k.dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := k.table.d.Write(t.Context(), func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET output = 0, written = NULL WHERE id = ?`, bare.ID)
	})
	if err == nil {
		err = k.tidy(t.Context(), k.id)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.files(3)
	k.has(whole, "whole")
	k.has(bare, "bare")
	k.has(torn, "<4>")
	files, err := k.table.files(t.Context(), k.id)
	if err != nil || files[bare.ID] != diskBlock {
		t.Errorf("%v %v", files, err)
	}
	none := filepath.Join(t.TempDir(), "none")
	k.outputs.dir = func(holt.ComputerID) string { return none }
	if err := k.tidy(t.Context(), "cmp_b"); err != nil {
		t.Error(err)
	}
}
