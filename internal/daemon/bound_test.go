package daemon_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
	"holt/internal/network"
)

// greedy takes all processors, all memory, the disk's turn and the network of a computer, as root; its
// arguments are an address of the host that pours, and one that nobody may reach.
const greedy = `for n in $(seq 16); do (while :; do :; done) & done
(while :; do dd if=/dev/zero of=/var/tmp/greedy bs=1M count=200 conv=fsync 2>/dev/null; done) &
cat > /root/flood.py <<'END'
import socket, sys, threading, time
def pour():
    while True:
        try:
            s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
            while s.recv(1 << 16): pass
        except OSError: pass
def dial():
    while True:
        try: socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
        except OSError: pass
def throw():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try: s.sendto(b'x' * 1400, ('10.9.8.7', 9))
        except OSError: pass
for what in [pour] * 8 + [dial] * 4 + [throw]: threading.Thread(target=what).start()
END
python3 /root/flood.py $1 $2 &
while :; do python3 -c 'b = bytearray(700 << 20)
while True:
  for i in range(0, len(b), 4096): b[i] = (b[i] + 1) % 256'; done`

// TestBounded: what a computer takes is bounded on the host, so another and the daemon go on beside one
// that takes all it gets. The bounds outlive the daemon, follow a resize, and go with the computer,
// however that ends.
func TestBounded(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx, far := t.Context(), listenPour(t)
	for _, spec := range []holt.ComputerSpec{{Name: "einstein", CPUs: 4, Network: onHost(far.Addr())}, {Name: "curie"}} {
		if _, err := v.Computers.Create(ctx, spec, ""); err != nil {
			t.Fatal(err)
		}
	}
	groups := v.groups("einstein")
	limit := groupBytes(t, groups)
	quiet := v.answers()
	r, err := v.Runs.Start(ctx, "einstein", holt.RunSpec{Argv: holt.OSStrings{"bash", "-c", greedy, "greedy", "host.holt.internal", strconv.Itoa(far.Addr().(*net.TCPAddr).Port)}, User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "all that is greedy to begin", func() bool { return v.received("einstein") > 8*mib })
	v.starves(r.ID, limit, quiet)
	v.counted()
	v.shares()
	v.kill()
	v.again("")
	if now := v.groups("einstein"); strings.Join(now, " ") != strings.Join(groups, " ") {
		t.Errorf("the next daemon has it in %v, not %v", now, groups)
	}
	if err := v.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	v.ends(r.ID, holt.RunExited)
	if v.virtual() { // a running sandbox keeps its size
		if _, err := v.Computers.Resize(ctx, "einstein", holt.ResizeSpec{MemoryMB: 1280}, ""); err != nil {
			t.Fatal(err)
		}
		if now := groupBytes(t, groups); now != limit+256*mib {
			t.Errorf("with 256 MiB more the bound went from %d to %d", limit, now)
		}
	}
	v.ungrouped(groups)
	endAll(t, v.process)
}

// ungrouped: no group is left of a machine that is deleted, of one that dies, and of one that died while no daemon ran.
func (v *vm) ungrouped(einstein []string) {
	t := v.t
	t.Helper()
	gone := func(how string, groups []string) {
		t.Helper()
		within(t, "the groups of a computer "+how+" to go", func() bool {
			for _, dir := range groups {
				if _, err := os.Stat(dir); err == nil {
					return false
				}
			}
			return true
		})
	}
	curie := v.groups("curie")
	v.remove("einstein")
	gone("that was deleted", einstein)
	v.wreck()
	gone("whose machine died", curie)
	started := func() bool {
		_, err := v.Computers.Start(t.Context(), "curie", "")
		return err == nil
	}
	within(t, "curie to be started", started)
	curie = v.groups("curie")
	v.kill()
	v.wreck()
	within(t, "its network to end", func() bool {
		left, err := network.Strays(v.dir)
		return err == nil && len(left) == 0
	})
	v.again("")
	gone("whose machine died without a daemon", curie)
	v.remove("curie")
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

// listenPour is a server that answers with all that a connection takes.
func listenPour(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for b := make([]byte, 64<<10); err == nil; {
					_, err = c.Write(b)
				}
			}()
		}
	}()
	return l
}

// answering is how long things take, the middle of several.
type answering struct{ run, call time.Duration }

// answers is how long curie takes for a run that does nothing, and the daemon for an answer, of 11 each, with HOLT_SOAK=1 of 101.
func (v *vm) answers() answering {
	v.t.Helper()
	var runs, calls []time.Duration
	times := 11
	if os.Getenv("HOLT_SOAK") != "" {
		times = 101
	}
	for range times {
		began := time.Now()
		if _, err := v.Stats.Get(v.t.Context(), "einstein"); err != nil {
			v.t.Fatal(err)
		}
		calls = append(calls, time.Since(began))
		began = time.Now()
		v.says("curie", "true")
		runs = append(runs, time.Since(began))
	}
	slices.Sort(runs)
	slices.Sort(calls)
	return answering{runs[len(runs)/2], calls[len(calls)/2]}
}

const (
	// mostSlower is by how much curie and the daemon may be slower beside a computer that takes all it gets: with
	// equal shares of two processors by two or three.
	mostSlower = 15
	mib        = 1 << 20
)

// starves: curie and the daemon go on beside einstein, which takes all that it gets, and the host knows that.
func (v *vm) starves(greedy holt.RunID, limit int64, quiet answering) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	before, err := v.Stats.Get(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	beside := v.answers()
	now, err := v.Stats.Get(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	span := now.At.Sub(before.At)
	busy := float64(now.CPUMS-before.CPUMS) / float64(span.Milliseconds())
	t.Logf("counts: beside a computer that took %.1f processors, %d MiB (%d MiB of them its own, of at most %d; %d MiB in use inside) and %.1f MiB/s of the network, a run took %v (%v before) and a call %v (%v before)",
		busy, now.ResidentBytes/mib, now.OwnBytes/mib, limit/mib, now.GuestBytes/mib, float64(now.Received-before.Received)/mib/span.Seconds(), beside.run, quiet.run, beside.call, quiet.call)
	// What is too little to feel is no ratio.
	if least := 20 * time.Millisecond; beside.run > mostSlower*quiet.run || max(beside.call, least) > mostSlower*max(quiet.call, least) {
		t.Errorf("beside it a run took %v and a call %v, without it %v and %v", beside.run, beside.call, quiet.run, quiet.call)
	}
	// Ten times of what an idle one takes; how much it gets is the busy host's affair.
	if busy < 0.1 || now.OwnBytes == 0 || now.OwnBytes > limit || now.DiskBytes == 0 || now.IdleSince != nil {
		t.Errorf("it took %.1f processors: %+v", busy, now)
	}
	if got, err := v.Runs.Get(ctx, greedy); err != nil || got.State != holt.RunRunning {
		t.Errorf("the run is %v %v", got.State, err)
	}
}

// counted: what einstein takes is that of its machine and of its network.
func (v *vm) counted() {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), "einstein")
	if err != nil {
		v.t.Fatal(err)
	}
	network := machine.UsageOf(v.networkOf("einstein"))
	var itself machine.Usage
	for _, m := range v.machines() {
		if filepath.Base(m.Dir) == string(c.ID) {
			itself = machine.UsageOf(m.Process.PID)
		}
	}
	s, err := v.Stats.Get(v.t.Context(), "einstein")
	if err != nil || network.CPUMS == 0 || itself.CPUMS == 0 || s.CPUMS < itself.CPUMS+network.CPUMS {
		v.t.Errorf("it took %d ms: its machine %d, its network %d: %v", s.CPUMS, itself.CPUMS, network.CPUMS, err)
	}
}

// shares: a computer with one processor gets as much as one with four, while both want all.
func (v *vm) shares() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	taken := func(name string) int64 {
		s, err := v.Stats.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return s.CPUMS
	}
	r, err := v.Runs.Start(ctx, "curie", holt.RunSpec{Command: "while :; do :; done", User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	einstein, curie := taken("einstein"), taken("curie")
	within(t, "curie to get three seconds of a processor", func() bool { return taken("curie") > curie+3000 })
	curie, einstein = taken("curie")-curie, taken("einstein")-einstein
	t.Logf("counts: of the processors four of einstein's got %d ms while one of curie's got %d ms", einstein, curie)
	if einstein > 3*curie {
		t.Errorf("einstein got %d ms, curie %d ms", einstein, curie)
	}
	if err := v.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	v.ends(r.ID, holt.RunExited)
}
