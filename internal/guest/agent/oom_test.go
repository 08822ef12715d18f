package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// TestParseKill: the cgroup and name of a kill are parsed from the kernel's
// log, whatever name a process chooses.
func TestParseKill(t *testing.T) {
	const head = "6,1021,95104281,-;"
	line := func(group, task string) string {
		return head + "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/holt,task_memcg=" + group + ",task=" + task + ",pid=812,uid=1000\n SUBSYSTEM=x\n"
	}
	for record, want := range map[string]oomKill{
		line("/holt/run_a", "node"):                         {"/holt/run_a", "node"},
		line("/holt/run_a", "a,pid=1,task=b"):               {"/holt/run_a", "a,pid=1,task=b"},
		line("/system.slice/web.service", "x\x1b[2J"):       {"/system.slice/web.service", "x\ufffd[2J"},
		head + "python3 invoked oom-killer: gfp_mask=0xcc0": {},
		head + "oom-kill:constraint=":                       {},
		"oom-kill:":                                         {},
		"":                                                  {},
	} {
		if got, ok := parseKill([]byte(record)); got != want || ok != (want != oomKill{}) {
			t.Errorf("%q: %+v %t, want %+v", record, got, ok, want)
		}
	}
}

func FuzzParseKill(f *testing.F) {
	f.Add([]byte("6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/a,task=b,pid=1,uid=0"))
	f.Add([]byte(";oom-kill:,task_memcg=,task=,pid="))
	f.Fuzz(func(t *testing.T, b []byte) { parseKill(b) })
}

// TestKilled: a run's kills are those in its cgroup and below.
func TestKilled(t *testing.T) {
	all := []oomKill{{"/holt/run_a", "node"}, {"/holt/run_a/below", "node"}, {"/holt/run_ab", "other"}, {"/holt/run_a", "tsc"}}
	if diff := cmp.Diff(&holt.OutOfMemory{Killed: []string{"node", "tsc"}, Count: 3}, killed(all, "run_a")); diff != "" {
		t.Error(diff)
	}
	if got := killed(all, "run_b"); got != nil {
		t.Errorf("%+v", got)
	}
	if n := eventCount([]byte("low 0\noom 1\noom_kill 2\noom_group_kill 0\n"), "oom_kill"); n != 2 {
		t.Errorf("%d kills", n)
	}
}

// TestHostileMemory: a guest's report is bounded.
func TestHostileMemory(t *testing.T) {
	got := vetMemory(&holt.OutOfMemory{LimitMB: -1, Count: -1, Killed: slices.Repeat([]string{strings.Repeat("\x1b", 1000)}, 1000), Raise: "rm -rf /"})
	if got.LimitMB != 0 || got.Count != 1 || len(got.Killed) != mostKillsTold || len(got.Killed[0]) > 3*64 || strings.Contains(got.Killed[0], "\x1b") || got.Raise != "" {
		t.Errorf("%+v", got)
	}
}
