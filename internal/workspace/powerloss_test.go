package workspace

import (
	"fmt"
	"os"
	"testing"
)

// TestPowerLosses takes the power away at random failpoints of a workspace at
// work, with whatever of the journal and the index was not synced: what comes
// back holds every synced operation, is a state that there was, and checks
// clean. HOLT_SOAK=1 does it 60 times, with other seeds each time. Losses
// between two operations come on top. -seed repeats a run.
func TestPowerLosses(t *testing.T) {
	const each, perSeed = 25, 20 // steps between two, losses of one workspace
	t.Parallel()
	losses, first := 20, uint64(1)
	if soak := os.Getenv("HOLT_SOAK") != ""; soak || *modelSeed != 0 {
		first = runsOf(t, 0, 0).seed
		if soak {
			losses = 60
		}
	}
	done, between := 0, 0
	for seed := first; done < losses && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := newModelRun(t, seed)
			inside, beside := 0, 0
			for inside < min(perSeed, losses-done) && !t.Failed() {
				for range r.rng.IntN(each) {
					r.step()
				}
				if r.wreck == 0 {
					r.wreck, r.power = 1+r.rng.IntN(40), true
				}
				if in, out := r.count["wreck, power"], r.count["power"]; in+out > inside+beside {
					inside, beside = in, out
					r.check()
				}
			}
			done, between = done+inside, between+beside
		})
	}
	if t.Failed() {
		t.Fatalf("repeat with -run TestPowerLosses -seed %d", first)
	}
	t.Logf("seeds from %d: %d losses of power at failpoints and %d between operations, nothing synced was lost", first, done, between)
}
