package agent

import (
	"path/filepath"
	"testing"

	"holt"
)

// TestSweptGroups: an agent that sweeps the groups of a host takes none away from the runs that another one starts there.
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
