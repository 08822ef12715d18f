package daemon_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"holt"
)

// A daemon that is told to pause its computers, of which one is being stopped, ends with no machine left;
// under the next one they go on where they were.
func TestDownPauses(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	for _, name := range []string{"einstein", "bohr"} {
		if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: name, MemoryMB: 256}, ""); err != nil {
			t.Fatal(err)
		}
	}
	const count = "cat /home/agent/count"
	r, err := v.Runs.Start(ctx, "einstein", holt.RunSpec{Command: "for ((n = 1; ; n++)); do echo $n > new; mv new count; sleep 0.1; done"}, "")
	if err != nil {
		t.Fatal(err)
	}
	v.until("einstein", "test -e /home/agent/count && echo counts || true", "counts")
	booted := v.says("einstein", boot)
	before, err := strconv.Atoi(v.says("einstein", count))
	if err != nil {
		t.Fatal(err)
	}
	stopped, caller := make(chan error, 1), v.Computers
	go func() {
		_, err := caller.Stop(context.Background(), "bohr", "")
		stopped <- err
	}()
	for {
		c, err := v.Computers.Get(ctx, "bohr")
		if err != nil {
			t.Fatal(err)
		}
		if c.State != holt.ComputerRunning {
			break
		}
	}
	report, err := v.Daemon.Down(ctx, holt.DownSpec{Computers: holt.DownPause}, "")
	if err != nil || !slices.Equal(report.Paused, []string{"einstein"}) || len(report.Kept) > 0 || slices.Contains(report.Stopped, "einstein") {
		t.Fatalf("%+v %v", report, err)
	}
	if err := v.wait(); err != nil {
		t.Error("the daemon ended with", err)
	}
	if left := v.machines(); len(left) > 0 {
		t.Errorf("machines are left: %+v", left)
	}
	v.again("")
	if err := <-stopped; err != nil {
		t.Error("stop:", err)
	}
	if c, err := v.Computers.Get(ctx, "einstein"); err != nil || c.State != holt.ComputerPaused || c.Snapshot == "" {
		t.Fatalf("%+v %v", c, err)
	}
	if _, err := v.Computers.Resume(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	v.clock("einstein")
	if now := v.says("einstein", boot); now != booted {
		t.Errorf("it was booted anew: %s, before %s", now, booted)
	}
	for last := before; ; { // a count that had begun anew would be behind
		n, err := strconv.Atoi(v.says("einstein", count))
		if err != nil || n < last {
			t.Fatalf("the count was %d and is %d, %v", last, n, err)
		}
		if n > last {
			break
		}
	}
	if r, err = v.Runs.Get(ctx, r.ID); err != nil || r.State != holt.RunRunning {
		t.Errorf("%+v %v", r, err)
	}
	if c, err := v.Computers.Get(ctx, "bohr"); err != nil || c.State != holt.ComputerStopped {
		t.Errorf("%+v %v", c, err)
	}
	v.remove("einstein")
	endAll(t, v.process)
}
