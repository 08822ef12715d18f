package daemon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"holt"
)

// TestBudgetOfForks: a computer and two forks of it, real machines, use one budget. A daemon is killed before it writes
// down what they have used, and another between the end of the budget and the first pause: the next one pauses all three,
// nothing wakes them, and once it is raised what worked in them goes on.
func TestBudgetOfForks(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 512}, ""); err != nil {
		t.Fatal(err)
	}
	v.says("einstein", "(while :; do echo >> /root/beats; sleep 0.2; done) > /dev/null 2>&1 &")
	forked, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Count: 2}, "")
	if err != nil || len(forked.Computers) != 2 {
		t.Fatalf("%+v %v", forked, err)
	}
	tree := []string{"einstein", forked.Computers[0].Name, forked.Computers[1].Name}
	beats := map[string]string{}
	for _, name := range tree {
		beats[name] = v.says(name, "wc -l < /root/beats")
	}

	v.kill()
	v.again("budget/count")
	hour, least := int64(3600e3), int64(1)
	go func(n *vm) { // its answer may be lost with the daemon
		_, _ = n.Computers.SetBudget(context.Background(), "einstein", holt.BudgetChange{RunMS: &hour}, "first")
	}(&vm{process: v.process})
	v.dies("budget/count")
	v.again("budget/pause")
	b, err := v.Computers.SetBudget(ctx, "einstein", holt.BudgetChange{RunMS: &hour}, "first")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "what they use to be counted", func() bool {
		c, err := v.Computers.Get(ctx, tree[2])
		return err == nil && len(c.Budgets) == 1 && c.Budgets[0].Used.RunMS > b.Used.RunMS
	})
	if _, err := v.Computers.SetBudget(ctx, "einstein", holt.BudgetChange{RunMS: &least}, ""); err != nil && holt.CodeOf(err) != holt.Unavailable {
		t.Fatal(err) // nothing is left of it
	}
	v.dies("budget/pause")
	v.again("")
	within(t, "all to be paused", func() bool {
		all, err := v.Computers.List(ctx)
		return err == nil && len(all) == 3 && !slices.ContainsFunc(all, func(c holt.Computer) bool {
			return c.State != holt.ComputerPaused || c.PausedBy != "budget"
		})
	})
	v.spent(tree)

	if _, err := v.Computers.SetBudget(ctx, "einstein", holt.BudgetChange{RunMS: &hour}, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range tree {
		v.says(name, "test $(wc -l < /root/beats) -ge "+beats[name])
		v.until(name, "kill -0 $(pgrep -of beats) && n=$(wc -l < /root/beats) && sleep 1 && test $(wc -l < /root/beats) -gt $n && echo goes on", "goes on")
	}
	v.atLimits(tree)
	for _, name := range slices.Backward(tree) {
		if _, err := v.Computers.Delete(ctx, name, ""); err != nil {
			t.Error(err)
		}
	}
	v.nothingKept()
	endAll(t, v.process)
}

// spent sees a tree whose budget is used up refuse all that would let one of it run.
func (v *vm) spent(tree []string) {
	v.t.Helper()
	ctx := v.t.Context()
	was := v.there()
	for _, name := range tree {
		_, err := v.Computers.Resume(ctx, name, "")
		v.refused(err, "budget of einstein", "holt computer budget einstein")
		_, err = v.Runs.Start(ctx, name, holt.RunSpec{Command: "true"}, "")
		v.refused(err, "budget of einstein", "holt computer budget einstein")
		_, err = v.Computers.Fork(ctx, name, holt.ComputerForkSpec{}, "")
		v.refused(err, "budget of einstein", "holt computer budget einstein")
		if a, err := v.Computers.Awake(ctx, name); err != nil || !strings.Contains(a.Note, "budget of einstein") {
			v.t.Errorf("%+v %v", a, err)
		}
	}
	if is := v.there(); is != was {
		v.t.Errorf("there was %s, and is %s", was, is)
	}
}

// refused wants an error of a limit that says these things.
func (v *vm) refused(err error, says ...string) {
	v.t.Helper()
	e := holt.AsError(err)
	if e == nil || e.Code != holt.TooMany || e.Hint == "" {
		v.t.Fatalf("%+v", e)
	}
	for _, s := range says {
		if !strings.Contains(e.Message+"\n"+e.Hint, s) {
			v.t.Errorf("%q, %q does not say %q", e.Message, e.Hint, s)
		}
	}
}

// there is all that a call could have left half-made.
func (v *vm) there() string {
	v.t.Helper()
	computers, err1 := v.Computers.List(v.t.Context())
	workspaces, err2 := v.Workspaces.List(v.t.Context())
	if err1 != nil || err2 != nil {
		v.t.Fatal(err1, err2)
	}
	var all []string
	for _, c := range computers {
		snapshots, err := v.Snapshots.List(v.t.Context(), c.Name)
		if err != nil {
			v.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %d snapshots", c.Name, c.State, len(snapshots)))
	}
	for _, w := range workspaces {
		all = append(all, w.Name)
	}
	for _, sub := range []string{"computers", "workspaces", "snapshots"} {
		all = append(all, fmt.Sprint(len(namesIn(v.t, v.dir+"/"+sub))))
	}
	return strings.Join(all, ", ")
}

// atLimits sees a tree that all runs have as much as its tenant may, in each way.
func (v *vm) atLimits(tree []string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	limit := func(c holt.LimitChange) {
		t.Helper()
		if _, err := v.Limits.Set(ctx, holt.DefaultTenant, c, ""); err != nil {
			t.Fatal(err)
		}
	}
	n, none, memory := 3, 0, int64(3*512)
	for _, of := range []struct {
		name         string
		limit, after holt.LimitChange
	}{
		{"computers", holt.LimitChange{MaxComputers: &n}, holt.LimitChange{MaxComputers: &none}},
		{"memory", holt.LimitChange{MaxMemoryMB: &memory}, holt.LimitChange{MaxMemoryMB: new(int64)}},
		{"running", holt.LimitChange{MaxRunning: &n}, holt.LimitChange{MaxRunning: &none}},
	} {
		limit(of.limit)
		was := v.there()
		_, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr", MemoryMB: 512}, "")
		v.refused(err, of.name, "holt limit set --tenant default --max-"+of.name)
		_, err = v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr"}, "")
		v.refused(err, of.name)
		if is := v.there(); is != was {
			t.Errorf("%s: there was %s, and is %s", of.name, was, is)
		}
		if of.name != "running" {
			limit(of.after)
		}
	}
	_, err := v.Computers.Stop(ctx, tree[2], "")
	if err == nil {
		_, err = v.Computers.Pause(ctx, tree[1], "")
	}
	if err != nil {
		t.Fatal(err)
	}
	n = 1
	limit(holt.LimitChange{MaxRunning: &n})
	_, err = v.Computers.Start(ctx, tree[2], "")
	v.refused(err, "running", "einstein")
	_, err = v.Computers.Resume(ctx, tree[1], "")
	v.refused(err, "running", "einstein")
	_, err = v.Runs.Start(ctx, tree[1], holt.RunSpec{Command: "true"}, "")
	v.refused(err, "running", "einstein")
	v.jobWaits()
	limit(holt.LimitChange{MaxRunning: &none})
	v.says(tree[1], "true")
}

// jobWaits sees a job wait at the limit, and go.
func (v *vm) jobWaits() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	j, err := v.Jobs.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}, MemoryMB: 512}, "")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the job to say why it waits", func() bool {
		j, err := v.Jobs.Get(ctx, j.ID)
		return err == nil && j.State == holt.JobQueued && strings.Contains(j.Reason, "is limited to 1 running computer")
	})
	if j, err = v.Jobs.Cancel(ctx, j.ID, ""); err != nil || j.State != holt.JobCancelled || j.Attempts != 0 {
		t.Errorf("%+v %v", j, err)
	}
}
