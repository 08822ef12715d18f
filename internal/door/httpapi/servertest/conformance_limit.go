package servertest

import (
	"fmt"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// limitVerbs: what tenants may have is what was set, and more is refused with what is used.
func limitVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "einstein")
	if l := Must(n.Limits.Get(ctx, holt.DefaultTenant))(t); l.MaxComputers != 0 || l.Used.Computers != 1 || l.Used.Running != 1 || l.Used.MemoryMB != int64(c.MemoryMB) || l.Used.DiskMB != int64(c.DiskSizeMB+c.WorkspaceSizeMB) {
		t.Errorf("at first %+v", l)
	}
	two, below, nothing, endless := 2, -1, int64(0), int64(1)<<62
	_, err := n.Limits.Set(ctx, "Not A Name", holt.LimitChange{MaxComputers: &two}, "")
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Limits.Set(ctx, "default", holt.LimitChange{}, "")
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Limits.Set(ctx, "default", holt.LimitChange{MaxComputers: &below}, "")
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Limits.Set(ctx, "default", holt.LimitChange{MaxRunMS: &endless}, "")
	WantCode(t, err, holt.InvalidArgument)
	memory := int64(2*c.MemoryMB) - 1
	Must(n.Limits.Set(ctx, "team-a", holt.LimitChange{MaxRunning: &two}, ""))(t)
	Must(n.Limits.Set(ctx, "default", holt.LimitChange{MaxComputers: &two}, ""))(t)
	if l := Must(n.Limits.Set(ctx, "default", holt.LimitChange{MaxMemoryMB: &memory}, ""))(t); l.MaxComputers != 2 || l.MaxMemoryMB != memory {
		t.Errorf("set: %+v", l)
	}
	if all := Must(n.Limits.List(ctx))(t); len(all) != 2 || all[0].Tenant != "default" || all[1].Tenant != "team-a" || all[1].MaxRunning != 2 {
		t.Errorf("listed %+v", all)
	}
	_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr"}, "")
	WantCode(t, err, holt.TooMany)
	Must(n.Computers.Stop(ctx, "einstein", ""))(t) // its memory is free then, not its place
	newComputer(t, n, "bohr")
	_, err = n.Computers.Start(ctx, "einstein", "")
	WantCode(t, err, holt.TooMany)
	Must(n.Limits.Set(ctx, "default", holt.LimitChange{MaxMemoryMB: &nothing}, ""))(t)
	Must(n.Computers.Start(ctx, "einstein", ""))(t)
	_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	WantCode(t, err, holt.TooMany)
	if got := Must(n.Computers.List(ctx))(t); len(got) != 2 {
		t.Errorf("a refused one is there: %+v", got)
	}
}

// budgetVerbs: a budget is shown with its computer, keeps what is not changed, and goes.
func budgetVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "einstein")
	hour, day, none, endless := int64(3600e3), int64(24*3600e3), int64(0), int64(1)<<62
	_, err := n.Computers.SetBudget(ctx, "nobody", holt.BudgetChange{CPUMS: &hour}, "")
	WantCode(t, err, holt.NotFound)
	for _, bad := range []holt.BudgetChange{{}, {CPUMS: &none}, {Reset: true}, {RunMS: &endless}} {
		_, err := n.Computers.SetBudget(ctx, "einstein", bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	WantCode(t, n.Computers.RemoveBudget(ctx, "einstein", ""), holt.NotFound)
	for i := range 2 {
		if b := Must(n.Computers.SetBudget(ctx, "einstein", holt.BudgetChange{CPUMS: &hour}, "k"))(t); b.CPUMS != hour || b.Computer != "einstein" || b.Exhausted {
			t.Errorf("%d: %+v", i, b)
		}
	}
	Must(n.Computers.SetBudget(ctx, "einstein", holt.BudgetChange{RunMS: &day}, ""))(t)
	got := Must(n.Computers.Get(ctx, "einstein"))(t)
	if len(got.Budgets) != 1 || got.Budgets[0].CPUMS != hour || got.Budgets[0].RunMS != day || got.Budgets[0].ComputerID != got.ID {
		t.Errorf("shown: %s", fmt.Sprint(got.Budgets))
	}
	fail(t, n.Computers.RemoveBudget(ctx, "einstein", ""))
	if got := Must(n.Computers.Get(ctx, "einstein"))(t); len(got.Budgets) != 0 {
		t.Errorf("removed: %+v", got.Budgets)
	}
}
