package daemon_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/cgroup"
	"holt/network"
)

// greedy takes all processors, all memory and the disk's turn of a computer, as root.
const greedy = `for n in $(seq 16); do (while :; do :; done) & done
(while :; do dd if=/dev/zero of=/var/tmp/greedy bs=1M count=200 conv=fsync 2>/dev/null; done) &
while :; do python3 -c 'b = bytearray(700 << 20)
while True:
  for i in range(0, len(b), 4096): b[i] = (b[i] + 1) % 256'; done`

// TestBounded: what a computer takes is bounded on the host, so another and the daemon go on beside one
// that takes all it gets, for 8 s, with HOLT_SOAK=1 for 60. The bounds outlive the daemon, follow a resize, and
// go with the computer.
func TestBounded(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	for _, name := range []string{"einstein", "curie"} {
		if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	groups := v.groups("einstein")
	limit := groupBytes(t, groups)
	r, err := v.Runs.Start(ctx, "einstein", holt.RunSpec{Command: greedy, User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	v.starves(r.ID, limit)
	v.kill()
	v.again("")
	if now := v.groups("einstein"); strings.Join(now, " ") != strings.Join(groups, " ") {
		t.Errorf("the next daemon has it in %v, not %v", now, groups)
	}
	if err := v.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	v.ends(r.ID, holt.RunExited)
	if _, err := v.Computers.Resize(ctx, "einstein", holt.ResizeSpec{MemoryMB: 1280}, ""); err != nil {
		t.Fatal(err)
	}
	if now := groupBytes(t, groups); now != limit+256<<20 {
		t.Errorf("with 256 MiB more the bound went from %d to %d", limit, now)
	}
	v.remove("einstein")
	v.remove("curie")
	for _, dir := range groups {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	endAll(t, v.process)
}

// groups are those that a computer's machine and its network are in.
func (v *vm) groups(computer string) []string {
	v.t.Helper()
	all, err := cgroup.Open()
	if err != nil {
		v.t.Fatal(err)
	}
	c, err := v.Computers.Get(v.t.Context(), computer)
	if err != nil {
		v.t.Fatal(err)
	}
	dir := filepath.Join(v.dir, "computers", string(c.ID))
	of := all.Groups(dir, v.networkOf(computer))
	for _, m := range v.machines() {
		if m.Dir != dir {
			continue
		}
		if got := all.Groups(dir, m.Process.PID); len(got) < 3 || strings.Join(got, " ") != strings.Join(of, " ") {
			v.t.Fatalf("the machine of %s is in %v, its network in %v", computer, got, of)
		}
	}
	if left, err := network.Leftover(v.dir); err != nil || len(left) != 0 {
		v.t.Errorf("networks of no machine: %v %v", left, err)
	}
	return of
}

// groupBytes is the bound of memory.
func groupBytes(t *testing.T, groups []string) int64 {
	t.Helper()
	for _, dir := range groups {
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("no bound of memory in %v", groups)
	return 0
}

// starves: curie and the daemon go on beside einstein, which takes all that it gets, and the host knows that.
func (v *vm) starves(greedy holt.RunID, limit int64) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	var before, now holt.ComputerStats
	var run, call time.Duration
	var err error
	long := 8 * time.Second
	if os.Getenv("HOLT_SOAK") != "" {
		long = time.Minute
	}
	for end := time.Now().Add(long); time.Now().Before(end); {
		began := time.Now()
		if now, err = v.Stats.Get(ctx, "einstein"); err != nil {
			t.Fatal(err)
		}
		call = max(call, time.Since(began))
		if before.At.IsZero() {
			before = now
		}
		began = time.Now()
		v.says("curie", "true")
		run = max(run, time.Since(began))
	}
	busy := float64(now.CPUMS-before.CPUMS) / float64(now.At.Sub(before.At).Milliseconds())
	t.Logf("counts: beside a computer that took for %v %.1f processors and %d MiB, %d MiB of them its own (bound %d MiB; %d MiB in use inside), a run took at most %v and a call %v",
		long, busy, now.ResidentBytes>>20, now.OwnBytes>>20, limit>>20, now.GuestBytes>>20, run.Round(time.Millisecond), call.Round(time.Millisecond))
	if run > hogLimit || call > hogLimit/2 {
		t.Errorf("beside it a run took %v, a call %v", run, call)
	}
	// Ten times of what an idle one takes; how much it gets is the busy host's affair.
	if busy < 0.1 || now.OwnBytes == 0 || now.OwnBytes > limit || now.DiskBytes == 0 || now.IdleSince != nil {
		t.Errorf("it took %.1f processors: %+v", busy, now)
	}
	if got, err := v.Runs.Get(ctx, greedy); err != nil || got.State != holt.RunRunning {
		t.Errorf("the run is %v %v", got.State, err)
	}
}
