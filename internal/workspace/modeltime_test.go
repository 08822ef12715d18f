package workspace

import (
	"flag"
	"os"
	"testing"
	"time"
)

var modelSeed = flag.Uint64("seed", 0, "the first seed of the random tests; 0: of the clock. TestModel, TestMergeModel and TestPackModel then do that one only")

// modelRuns says what a random test does: the rounds of seeds from one on,
// until some time.
type modelRuns struct {
	seed  uint64
	one   bool // a failure is repeated: that seed only, to its end
	until time.Time
}

// runsOf reads the flag and the environment. A test runs for as long as it says
// for CI and, with HOLT_SOAK=1, for a soak, or then for HOLT_SOAK_TIME (as 2h).
func runsOf(t *testing.T, ci, soak time.Duration) modelRuns {
	t.Helper()
	r := modelRuns{seed: *modelSeed, one: *modelSeed != 0}
	if !r.one {
		r.seed = uint64(time.Now().UnixNano()) % 1e9
	}
	if os.Getenv("HOLT_SOAK") != "" {
		ci = soak
		if long := os.Getenv("HOLT_SOAK_TIME"); long != "" {
			var err error
			if ci, err = time.ParseDuration(long); err != nil {
				t.Fatal("HOLT_SOAK_TIME: ", err)
			}
		}
	}
	r.until = time.Now().Add(ci)
	return r
}

// over says whether the time is up; for a seed that is repeated it never is.
func (r modelRuns) over() bool { return !r.one && time.Now().After(r.until) }
