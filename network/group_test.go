package network

import (
	"context"
	"os"
	"testing"

	"holt"
	"holt/cgroup"
)

// TestGroup: a network is in the group of its machine, and the group goes when both have ended.
func TestGroup(t *testing.T) {
	groups, err := cgroup.Open()
	if err != nil {
		t.Fatalf("this test needs root and control groups: %v", err)
	}
	f, n := newFake(t), networks(t)
	n.opt.Groups = groups
	if err := groups.Put(f.dir, f.process.Pid, cgroup.Limits{CPUs: 1, MemoryBytes: 256 << 20, Processes: 100}); err != nil {
		t.Fatal(err)
	}
	of := groups.Groups(f.dir, f.process.Pid)
	if err := n.Write(t.Context(), f.dir, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
		t.Fatal(err)
	}
	l := n.Join(f.dir, false, func(context.Context) {})
	f.joined()
	ready(t, l)
	if got := groups.Groups(f.dir, f.pid()); len(got) == 0 || len(got) != len(of) {
		t.Errorf("the network is in %v, its machine in %v", got, of)
	}
	f.process.Kill()
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
	for _, dir := range of {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}
