package daemon_test

import (
	"strings"
	"testing"

	"holt"
)

// TestStats: what a computer takes counts what its runs use while they do, and its workspace; who is
// stopped takes no processor.
func TestStats(t *testing.T) {
	n := up(t, config(t, home(t))).Nouns()
	ctx := t.Context()
	if _, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Files.Write(ctx, "einstein", "/home/agent/note", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 5000))); err != nil {
		t.Fatal(err)
	}
	before, err := n.Stats.Get(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	if before.ResidentBytes == 0 || before.OwnBytes == 0 || before.WorkspaceBytes < 5000 || before.IdleSince == nil {
		t.Errorf("it takes %+v", before)
	}
	r, err := n.Runs.Start(ctx, "einstein", holt.RunSpec{Command: "while :; do :; done"}, "")
	if err != nil {
		t.Fatal(err)
	}
	now := before
	within(t, "the processor's time to count", func() bool {
		all, err := n.Stats.List(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		now = all[0]
		return now.CPUMS >= before.CPUMS+300
	})
	if now.IdleSince != nil {
		t.Errorf("it is idle while it runs: %+v", now)
	}
	if err := n.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Computers.Stop(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	if now, err = n.Stats.Get(ctx, "einstein"); err != nil || now.CPUMS != 0 || now.ResidentBytes != 0 || now.WorkspaceBytes < 5000 {
		t.Errorf("who is stopped takes %+v %v", now, err)
	}
}
