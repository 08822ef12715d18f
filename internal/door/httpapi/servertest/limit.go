package servertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// Its computers use nothing that a budget counts, and all are the default tenant's.

// limits are the noun.
type limits struct{ m *Memory }

func (n limits) Get(_ context.Context, tenant string) (holt.Limit, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	tenant, err := holt.ParseTenant(tenant)
	return n.m.limit(tenant), err
}

func (n limits) List(context.Context) ([]holt.Limit, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	list := []holt.Limit{n.m.limit(holt.DefaultTenant)}
	for tenant := range n.m.limits {
		if tenant != holt.DefaultTenant {
			list = append(list, n.m.limit(tenant))
		}
	}
	slices.SortFunc(list, func(a, b holt.Limit) int { return strings.Compare(a.Tenant, b.Tenant) })
	return list, nil
}

func (n limits) Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (holt.Limit, error) {
	if holt.TenantOf(ctx) != holt.DefaultTenant {
		return holt.Limit{}, holt.Errorf(holt.Forbidden, "this token cannot change limits").WithHint("use one of the tenant %s", holt.DefaultTenant)
	}
	return once(n.m, key, []any{"limit", tenant, change}, func() (holt.Limit, error) {
		tenant, err := holt.ParseTenant(tenant)
		if err != nil {
			return holt.Limit{}, err
		}
		l := n.m.limit(tenant)
		if err := change.Apply(&l); err != nil {
			return l, err
		}
		if n.m.limits == nil {
			n.m.limits = map[string]holt.Limit{}
		}
		n.m.limits[tenant] = l
		return l, nil
	})
}

// limit returns what a tenant may have and has; the lock is held.
func (m *Memory) limit(tenant string) holt.Limit {
	l := m.limits[tenant]
	l.Tenant, l.Used = tenant, holt.TenantUse{}
	for _, c := range m.computers {
		if c.Tenant != tenant {
			continue
		}
		l.Used.Computers++
		l.Used.DiskMB += int64(c.DiskSizeMB + c.WorkspaceSizeMB)
		if c.State == holt.ComputerRunning {
			l.Used.Running++
			l.Used.MemoryMB += int64(c.MemoryMB)
		}
	}
	return l
}

// admit says whether the default tenant may have as much more; the lock is held.
func (m *Memory) admit(computers int, memoryMB, diskMB int) error {
	l := m.limit(holt.DefaultTenant)
	for _, d := range []struct {
		what             string
		used, more, most int64
	}{
		{"computers", int64(l.Used.Computers), int64(computers), int64(l.MaxComputers)},
		{"running computers", int64(l.Used.Running), 1, int64(l.MaxRunning)},
		{"MiB of memory", l.Used.MemoryMB, int64(memoryMB), l.MaxMemoryMB},
		{"MiB of disks", l.Used.DiskMB, int64(diskMB), l.MaxDiskMB},
	} {
		if d.most > 0 && d.more > 0 && d.used+d.more > d.most {
			return holt.Errorf(holt.TooMany, "the tenant default may have %d %s and has %d", d.most, d.what, d.used).WithHint("raise the limit: holt limit set")
		}
	}
	return nil
}

func (n computers) SetBudget(_ context.Context, ref string, change holt.BudgetChange, key string) (holt.Budget, error) {
	return once(n.m, key, []any{"budget", ref, change}, func() (holt.Budget, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Budget{}, err
		}
		b := holt.Budget{ComputerID: c.ID, Computer: c.Name, CreatedAt: time.Now().UTC()}
		at := slices.IndexFunc(c.Budgets, func(b holt.Budget) bool { return b.ComputerID == c.ID })
		if at >= 0 {
			b = c.Budgets[at]
		}
		if err := change.Apply(&b); err != nil {
			return b, err
		}
		for _, of := range n.m.computers {
			if of.ID != c.ID && (of.Parent == nil || of.Parent.ID != c.ID) {
				continue
			}
			of.Budgets = append(slices.DeleteFunc(slices.Clone(of.Budgets), func(b holt.Budget) bool { return b.ComputerID == c.ID }), b)
		}
		return b, nil
	})
}

func (n computers) RemoveBudget(_ context.Context, ref, key string) error {
	_, err := once(n.m, key, []any{"remove budget", ref}, func() (struct{}, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return struct{}{}, err
		}
		own := func(b holt.Budget) bool { return b.ComputerID == c.ID }
		if !slices.ContainsFunc(c.Budgets, own) {
			return struct{}{}, holt.Errorf(holt.NotFound, "%s has no budget of its own", c.Name).WithHint("holt computer get shows those that count it")
		}
		for _, of := range n.m.computers {
			of.Budgets = slices.DeleteFunc(slices.Clone(of.Budgets), own)
		}
		return struct{}{}, nil
	})
	return err
}

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

// workspaceSize is what a computer's own workspace may hold, MiB.
func (m *Memory) workspaceSize(spec holt.ComputerSpec) int {
	if spec.Workspace != "" || m.limit(holt.DefaultTenant).MaxDiskMB == 0 {
		return spec.WorkspaceSizeMB
	}
	return cmp.Or(spec.WorkspaceSizeMB, holt.DefaultWorkspaceMB)
}
