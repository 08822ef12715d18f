// Package servertest holds what tests of the doors stand on: a daemon on the local engine, a server in front of it, and
// the conformance suite of the server's nouns.
package servertest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"holt"
	"holt/internal/nouns"
)

// Conformance checks what the comments in package server promise of its nouns.
// open returns a fresh set without computers and workspaces; closing it is the
// test's to arrange. only names the parts to check; without any, all are.
func Conformance(t *testing.T, open func(t *testing.T) nouns.Set, only ...string) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, nouns.Set)
	}{
		{"life", life}, {"idempotency", repeats}, {"unknown", unknown}, {"ports", portVerbs}, {"portends", portEnds},
		{"runs", runSeveral}, {"follow", follow}, {"input", input}, {"signal", signal}, {"terminals", terminalVerbs}, {"typists", terminalTypists},
		{"artifacts", artifactVerbs}, {"buckets", bucketVerbs}, {"copies", artifactCopies}, {"trees", artifactTrees}, {"links", linkVerbs}, {"rules", ruleVerbs}, {"publishing", publishing}, {"files", fileVerbs}, {"write", writes}, {"workspaces", workspaceVerbs}, {"tree", treeVerbs}, {"history", historyVerbs}, {"forks", forkVerbs}, {"snapshots", snapshotVerbs}, {"idle", testIdle}, {"schedules", scheduleVerbs}, {"jobs", jobVerbs}, {"networks", networkVerbs}, {"stats", statsVerbs}, {"secrets", secretVerbs}, {"tokens", tokenVerbs}, {"ssh", sshVerbs}, {"previews", previewVerbs}, {"resize", resizes}, {"limits", limitVerbs}, {"budgets", budgetVerbs}, {"events", eventVerbs}, {"uploads", uploadVerbs}, {"daemon", daemonVerbs},
	} {
		if len(only) == 0 || slices.Contains(only, c.name) {
			t.Run(c.name, func(t *testing.T) { c.f(t, open(t)) })
		}
	}
}

// Must returns v and fails the test on an error.
func Must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// WantCode fails the test unless err has the code and says something.
func WantCode(t *testing.T, err error, want holt.Code) {
	t.Helper()
	var e *holt.Error
	if !errors.As(err, &e) || e.Code != want || e.Message == "" {
		t.Errorf("got error %v with code %q, want code %q", err, holt.CodeOf(err), want)
	}
}

func fail(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newComputer(t *testing.T, n nouns.Set, name string) holt.Computer {
	t.Helper()
	return Must(n.Computers.Create(t.Context(), holt.ComputerSpec{Name: name}, ""))(t)
}

func life(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "einstein")
	if c.Name != "einstein" || c.State != holt.ComputerRunning || c.Workspace != "einstein" {
		t.Errorf("created %+v", c)
	}
	newComputer(t, n, "bohr")
	for _, ref := range []string{"einstein", string(c.ID)} {
		if got := Must(n.Computers.Get(ctx, ref))(t); got.ID != c.ID {
			t.Errorf("get %s: %s, want %s", ref, got.ID, c.ID)
		}
	}
	if all := Must(n.Computers.List(ctx))(t); len(all) != 2 {
		t.Errorf("listed %d computers, want 2", len(all))
	}
	for range 2 { // the second changes nothing
		if got := Must(n.Computers.Stop(ctx, "einstein", ""))(t); got.State != holt.ComputerStopped {
			t.Errorf("stopped: %s", got.State)
		}
	}
	run := Must(n.Runs.Start(ctx, "einstein", holt.RunSpec{Command: "exit 0"}, ""))(t) // wakes it
	if _, end := Collect(t, n, run.ID); end.ExitCode != 0 {
		t.Errorf("run: %+v", end)
	}
	if got := Must(n.Computers.Get(ctx, "einstein"))(t); got.State != holt.ComputerRunning {
		t.Errorf("after a run: %s", got.State)
	}
	if got := Must(n.Computers.Start(ctx, "einstein", ""))(t); got.State != holt.ComputerRunning {
		t.Errorf("started: %s", got.State)
	}
	_, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	WantCode(t, err, holt.AlreadyExists)
	fail(t, n.Computers.Logs(ctx, "einstein", holt.LogQuery{}, new(bytes.Buffer)))
	Must(n.Computers.Delete(ctx, "einstein", ""))(t)
	_, err = n.Computers.Get(ctx, "einstein")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Get(ctx, "einstein") // it was made with the computer
	WantCode(t, err, holt.NotFound)
}

func repeats(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	first := Must(n.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "key-1"))(t)
	again := Must(n.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "key-1"))(t)
	if first.ID != again.ID {
		t.Errorf("a repeated create made %s besides %s", again.ID, first.ID)
	}
	_, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: "other"}, "key-1")
	WantCode(t, err, holt.Conflict)
	spec := holt.RunSpec{Command: "echo x >> times"}
	run := Must(n.Runs.Start(ctx, "curie", spec, "key-2"))(t)
	if repeated := Must(n.Runs.Start(ctx, "curie", spec, "key-2"))(t); repeated.ID != run.ID {
		t.Errorf("a repeated start made %s besides %s", repeated.ID, run.ID)
	}
	Collect(t, n, run.ID)
	count := Must(n.Runs.Start(ctx, "curie", holt.RunSpec{Command: "grep -c x times"}, ""))(t)
	if out, _ := Collect(t, n, count.ID); strings.TrimSpace(out[holt.RunStdout]) != "1" {
		t.Errorf("the command ran %q times, want 1", out)
	}
}

func unknown(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	_, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: "x", Template: "no-such-template"}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Computers.Stop(ctx, "nobody", "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Computers.Delete(ctx, "nobody", "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Runs.Start(ctx, "nobody", holt.RunSpec{Command: "true"}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Runs.Get(ctx, holt.NewRunID())
	WantCode(t, err, holt.NotFound)
	err = n.Runs.Follow(ctx, holt.NewRunID(), 0, func(holt.RunEvent) error { return nil })
	WantCode(t, err, holt.NotFound)
	_, err = n.Files.Stat(ctx, "nobody", "/")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Check(ctx, "nothing")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Query(ctx, "nothing", holt.QuerySpec{SQL: "SELECT path FROM files"})
	WantCode(t, err, holt.NotFound)
	WantCode(t, n.Workspaces.Unmount(ctx, "/no/such/mount", ""), holt.NotFound)
}

// Collect follows a run to its end and returns what it wrote, by stream.
func Collect(t *testing.T, n nouns.Set, id holt.RunID) (map[holt.RunEventKind]string, holt.Run) {
	t.Helper()
	out := map[holt.RunEventKind]string{}
	var end *holt.Run
	err := n.Runs.Follow(t.Context(), id, 0, func(e holt.RunEvent) error {
		if e.Kind == holt.RunExit {
			end = e.Run
			return nil
		}
		out[e.Kind] += string(e.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if end == nil {
		t.Fatal("the run's end has no run")
	}
	return out, *end
}

func runSeveral(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "noether")
	want := map[holt.RunEventKind]string{holt.RunStdout: "hi there\n", holt.RunStderr: "oh\n"}
	run := Must(n.Runs.Start(ctx, "noether", holt.RunSpec{Command: "echo $GREETING there; echo oh >&2; exit 7", Env: map[holt.OSString]holt.OSString{"GREETING": "hi"}}, ""))(t)
	out, end := Collect(t, n, run.ID)
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	if end.State != holt.RunExited || end.ExitCode != 7 || end.EndedAt == nil || end.ID != run.ID {
		t.Errorf("ended as %+v", end)
	}
	got := Must(n.Runs.Get(ctx, run.ID))(t)
	if run.Spec.Env != nil || got.Spec.Env != nil {
		t.Errorf("the environment is shown: %v, %v", run.Spec.Env, got.Spec.Env)
	}
	if d := cmp.Diff(end, got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	second := Must(n.Runs.Start(ctx, "noether", holt.RunSpec{Argv: []string{"/bin/sh", "-c", "echo \"$1\"", "sh", "a  b\xff"}}, ""))(t)
	if out, _ := Collect(t, n, second.ID); out[holt.RunStdout] != "a  b\xff\n" {
		t.Errorf("argv: %q", out)
	}
	list := Must(n.Runs.List(ctx, "noether", "", 10))(t)
	if len(list) != 2 || list[0].ID != second.ID || list[1].ID != run.ID {
		t.Errorf("listed %+v, want newest first", list)
	}
	list = Must(n.Runs.List(ctx, "noether", second.ID, 10))(t)
	if len(list) != 1 || list[0].ID != run.ID {
		t.Errorf("listed %+v after the newest", list)
	}
	newComputer(t, n, "germain")
	third := Must(n.Runs.Start(ctx, "germain", holt.RunSpec{Command: "echo $KEY plain-hunter2-text", Secrets: holt.Secrets{"KEY": "hunter2"}}, ""))(t)
	if out, end := Collect(t, n, third.ID); out[holt.RunStdout] != "*** plain-***-text\n" || end.Spec.Secrets != nil || end.Spec.Command != "echo $KEY plain-***-text" {
		t.Errorf("a secret: %q, %+v", out, end)
	}
	list = Must(n.Runs.List(ctx, "", "", 2))(t)
	if len(list) != 2 || list[0].ID != third.ID || list[1].ID != second.ID {
		t.Errorf("of all computers: %+v, want newest first", list)
	}
}

func follow(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "hopper")
	run := Must(n.Runs.Start(ctx, "hopper", holt.RunSpec{Command: "echo 0123456789"}, ""))(t)
	Collect(t, n, run.ID)
	var got strings.Builder
	offset, exits := int64(-1), 0
	fail(t, n.Runs.Follow(ctx, run.ID, 4, func(e holt.RunEvent) error {
		if offset < 0 {
			offset = e.Offset
		}
		if e.Kind == holt.RunExit {
			exits++
		}
		got.Write(e.Data)
		return nil
	}))
	if got.String() != "456789\n" || offset != 4 || exits != 1 {
		t.Errorf("from 4: %q at %d, %d exits", got.String(), offset, exits)
	}
	enough := errors.New("enough")
	if err := n.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the follower's error came back as %v", err)
	}
	long := Must(n.Runs.Start(ctx, "hopper", holt.RunSpec{Command: "echo begun; sleep 1000"}, ""))(t)
	some, cancel := context.WithCancel(ctx)
	err := n.Runs.Follow(some, long.ID, 0, func(e holt.RunEvent) error { cancel(); return nil })
	if err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled follow returned %v", err)
	}
	fail(t, n.Runs.Signal(ctx, long.ID, "SIGKILL", ""))
	Collect(t, n, long.ID)
}

func input(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "turing")
	run := Must(n.Runs.Start(ctx, "turing", holt.RunSpec{Command: "tr a-z A-Z; echo over", Stdin: true}, ""))(t)
	send := func(offset int64, text string, eof bool, want int64) {
		t.Helper()
		if at := Must(n.Runs.Input(ctx, run.ID, offset, strings.NewReader(text), eof, false))(t); at != want {
			t.Errorf("the input stands at %d, want %d", at, want)
		}
	}
	send(-1, "hel", false, 3)
	send(0, "hello ", false, 6) // what was taken is skipped
	send(2, "llo", false, 6)
	_, err := n.Runs.Input(ctx, run.ID, 7, strings.NewReader("x"), false, false)
	WantCode(t, err, holt.InvalidArgument)
	send(-1, "wor", false, 9)
	send(6, "world\n", true, 12)
	if out, _ := Collect(t, n, run.ID); out[holt.RunStdout] != "HELLO WORLD\nover\n" {
		t.Errorf("output %q", out)
	}
	_, err = n.Runs.Input(ctx, run.ID, 12, strings.NewReader("more"), true, false)
	WantCode(t, err, holt.Conflict)
	without := Must(n.Runs.Start(ctx, "turing", holt.RunSpec{Command: "cat"}, ""))(t)
	if out, end := Collect(t, n, without.ID); len(out) != 0 || end.ExitCode != 0 {
		t.Errorf("without input: %q, %+v", out, end)
	}
}

func signal(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "lovelace")
	run := Must(n.Runs.Start(ctx, "lovelace", holt.RunSpec{Command: "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done"}, ""))(t)
	sent := false
	var end holt.Run
	fail(t, n.Runs.Follow(ctx, run.ID, 0, func(e holt.RunEvent) error {
		if e.Kind == holt.RunExit {
			end = *e.Run
		}
		if sent {
			return nil
		}
		sent = true
		return n.Runs.Signal(ctx, run.ID, "SIGINT", "")
	}))
	if end.ExitCode != 5 {
		t.Errorf("ended with %d, want 5", end.ExitCode)
	}
	WantCode(t, n.Runs.Signal(ctx, run.ID, "SIGINT", ""), holt.Conflict)
	timed := Must(n.Runs.Start(ctx, "lovelace", holt.RunSpec{Command: "sleep 1000", TimeoutMS: 20}, ""))(t)
	if _, end := Collect(t, n, timed.ID); !end.TimedOut || end.ExitCode <= 128 {
		t.Errorf("timed out as %+v", end)
	}
}
