package daemon_test

import (
	"strings"
	"testing"
	"time"

	"holt"
)

// hog is a run that takes what it can get of a computer.
type hog struct {
	takes   string
	command string // as root
	bites   string // says yes once nothing more is to be had; its argument is the run's cgroup
	away    string // what remains to be done when it has ended
}

var hogs = []hog{
	{
		takes:   "processes",
		command: "exec perl -e 'fork while 1'",
		bites:   `(grep -qx "$(cat $1/pids.max)" $1/pids.current || grep -qs 'oom_kill [1-9]' $1/memory.events) && echo yes`,
	},
	{
		takes:   "memory",
		command: `rm -f /run/again; while :; do echo >> /run/again; python3 -c 'b = [b"x" * (64 << 20) for _ in range(64)]'; done`,
		bites:   `test $(wc -l < /run/again) -gt 1 && echo yes`,
	},
	{
		takes: "the root disk",
		command: `mkdir /var/fill; for mb in 512 256 64 16 4 1; do while fallocate -l ${mb}M /var/fill/$((n += 1)); do :; done; done
			while :; do cat /dev/zero >> /var/fill/more; done`,
		bites: `head -c 1M /dev/zero 2>/dev/null > /var/fill/probe || echo yes`,
		away:  "rm -r /var/fill",
	},
	{
		takes:   "the processor",
		command: "for n in $(seq 32); do (while :; do :; done) & done; wait",
		bites:   `test $(wc -l < $1/cgroup.procs) -gt 16 && echo yes`,
	},
}

// hogLimit is how long a run may take beside a hog. In software emulation it takes a second without one.
const hogLimit = 10 * time.Second

// TestHogs: whatever a run takes, another run begins and ends beside it within seconds; nothing but
// what the hog has started is killed; and when it was killed the computer is as it was.
func TestHogs(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	if _, err := v.Computers.Create(t.Context(), holt.ComputerSpec{Name: "einstein", DiskSizeMB: 1536}, ""); err != nil {
		t.Fatal(err)
	}
	v.until("einstein", "systemctl is-system-running || true", "running")
	before := v.says("einstein", agents)
	for _, h := range hogs {
		v.suffers("einstein", h)
		if after := v.says("einstein", agents); after != before {
			t.Errorf("%s: the agent was %q, and is %q", h.takes, before, after)
		}
	}
	v.remove("einstein")
	endAll(t, v.process)
}

// agents shows the processes of the agent, and init.
const agents = "pgrep --list-name --full ^@holt-guest; pgrep --list-name --exact systemd"

// suffers has a hog run in a computer, and then not.
func (v *vm) suffers(computer string, h hog) {
	t := v.t
	t.Helper()
	r, err := v.Runs.Start(t.Context(), computer, holt.RunSpec{Command: holt.OSString(h.command), User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	v.until(computer, "set -- /sys/fs/cgroup/holt/"+string(r.ID)+"; "+h.bites+" || true", "yes")
	var longest time.Duration
	for range 5 {
		began := time.Now()
		v.says(computer, "true")
		longest = max(longest, time.Since(began))
	}
	t.Logf("counts: beside a hog that takes %s a run took %v", h.takes, longest.Round(10*time.Millisecond))
	if longest > hogLimit {
		t.Errorf("beside a hog that takes %s a run took %v", h.takes, longest)
	}
	if err := v.Runs.Signal(t.Context(), r.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	v.ends(r.ID, holt.RunExited)
	v.until(computer, "cat /sys/fs/cgroup/holt/"+string(r.ID)+"/cgroup.procs 2>/dev/null || true", "")
	if h.away != "" {
		v.says(computer, h.away)
	}
	v.says(computer, "python3 -c 'b = bytearray(200 << 20)' && echo > /var/tmp/free && systemctl is-system-running")
	if killed := v.says(computer, "dmesg | grep 'Killed process' | grep -vE '[(](perl|python3)[)]' || true"); killed != "" {
		t.Errorf("%s: %s", h.takes, strings.TrimSpace(killed))
	}
}
