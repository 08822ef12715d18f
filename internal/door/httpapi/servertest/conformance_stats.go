package servertest

import (
	"testing"

	"holt"
	"holt/internal/nouns"
)

// statsVerbs looks at what a computer takes that runs, and one that does not.
func statsVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	_, err := n.Stats.Get(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	c := newComputer(t, n, "einstein")
	newComputer(t, n, "curie")
	Must(n.Computers.Stop(ctx, "curie", ""))(t)
	one := Must(n.Stats.Get(ctx, "einstein"))(t)
	if one.ComputerID != c.ID || one.Computer != "einstein" || one.State != holt.ComputerRunning || one.At.IsZero() || one.CPUs != c.CPUs || one.MemoryMB != c.MemoryMB || one.ResidentBytes == 0 || one.OwnBytes == 0 {
		t.Errorf("einstein takes %+v", one)
	}
	all := Must(n.Stats.List(ctx))(t)
	if len(all) != 2 {
		t.Fatalf("all: %+v", all)
	}
	for _, one := range all {
		if one.Computer == "curie" && (one.State != holt.ComputerStopped || one.CPUMS != 0 || one.ResidentBytes != 0 || one.IdleSince != nil) {
			t.Errorf("who is stopped takes %+v", one)
		}
	}
}
