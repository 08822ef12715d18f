package computer

import (
	"context"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// A guest in which nothing works but its agent may count less each time: it is known to be idle. One that counts from
// the beginning is not known until it is asked again.
func TestBusyCountsLess(t *testing.T) {
	now := time.Unix(1e9, 0)
	told := agent.Activity{CPUMS: 95_682, NetBytes: 131_554}
	b := &busy{now: func() time.Time { return now }, looking: make(chan struct{}, 1), ask: func(context.Context) (agent.Activity, error) { return told, nil }}
	for i, step := range []struct {
		cpu, net int64 // that it counts more
		known    bool
		use      holt.UseKind
	}{
		{0, 0, false, ""}, {-269, 0, true, ""}, {-661, 0, true, ""}, {-31, -500, true, ""}, {0, 0, true, ""},
		{4000, 0, true, holt.UseCPU}, {-600, 0, true, ""}, {0, 1 << 20, true, holt.UseNetwork},
		{-90_000, -1 << 20, false, ""}, {100, 100, true, ""},
	} {
		now = now.Add(5 * time.Second)
		told.CPUMS += step.cpu
		told.NetBytes += step.net
		b.look(t.Context())
		uses, unknown := b.is(20 * time.Second)
		if known := unknown == ""; known != step.known {
			t.Errorf("step %d: %q", i, unknown)
		}
		if (step.use == "") != (len(uses) == 0) || len(uses) == 1 && uses[0].Kind != step.use {
			t.Errorf("step %d: in use for %v, want %q", i, uses, step.use)
		}
	}
}
