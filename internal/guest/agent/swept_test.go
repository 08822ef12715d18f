package agent

import (
	"path/filepath"
	"testing"

	"holt"
)

// TestSweptGroups: an agent that sweeps cgroups does not break the start of runs of another agent.
func TestSweptGroups(t *testing.T) {
	g := startGuest(t)
	c, other := g.client(t), findGroups("holt-test-"+filepath.Base(filepath.Dir(g.dir)))
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			default:
				other.sweep()
			}
		}
	}()
	for range 100 {
		if _, err := c.StartRun(t.Context(), holt.NewRunID(), holt.RunSpec{Argv: holt.OSStrings{"/bin/true"}}); err != nil {
			t.Fatal(err)
		}
	}
}
