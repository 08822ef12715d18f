package computer

import (
	"context"
	"fmt"
	"strings"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// ofTenant is the condition that a row's computer belongs to the tenant in parameter n; ” is any.
func ofTenant(n int) string {
	return fmt.Sprintf(`(?%[1]d = '' OR computer IN (SELECT id FROM computer WHERE tenant = ?%[1]d))`, n)
}

// ancestry is the part of a record with the computer's ancestors.
type ancestry struct {
	lineage string // ids of all ancestors, a space before each
}

// belongs sets the tenant and the ancestors of a new computer, as part of a transaction. A fork
// belongs to its parent's tenant, whoever makes it, so that a fork does not evade limits.
func (r *record) belongs(tx *db.Tx) error {
	if r.Tenant == "" {
		r.Tenant = holt.DefaultTenant
	}
	if r.Parent == nil {
		return nil
	}
	return tx.Query(`SELECT tenant, lineage FROM computer WHERE id = ?`, []any{r.Parent.ID}, func(row *db.Row) error {
		r.Tenant, r.lineage = row.Text(0), row.Text(1)+" "+string(r.Parent.ID)
		return nil
	})
}

// runsNow selects computers that have a machine or are about to; also those that a restore has
// paused.
const runsNow = `(state NOT IN ('paused', 'stopped', 'failed') OR id IN (SELECT computer FROM restore WHERE ran))`

// allotment is what one computer uses of what tenants have limits for.
type allotment struct {
	name           string
	running        bool
	memory, diskMB int64 // memory whether it runs or not
}

// allotment is what a computer takes when it is what its record says.
func (r *record) allotment() allotment {
	_, wanted := r.wanted()
	asleep := r.State == holt.ComputerPaused || r.State == holt.ComputerStopped || r.State == holt.ComputerFailed
	return allotment{r.Name, !asleep, int64(max(wanted, r.MemoryMB)), int64(r.DiskSizeMB + r.WorkspaceSizeMB)}
}

func (s allotment) memoryMB() int64 {
	if !s.running {
		return 0
	}
	return s.memory
}

// allotments returns those of a tenant's computers, with one apart.
func allotments(tx *db.Tx, tenant string, but holt.ComputerID) (others []allotment, of *allotment, err error) {
	err = tx.Query(`SELECT id, name, `+runsNow+`, max(memory_mb, wish_memory_mb), disk_mb + workspace_mb FROM computer WHERE tenant = ? ORDER BY memory_mb DESC, name`,
		[]any{tenant}, func(row *db.Row) error {
			one := allotment{row.Text(1), row.Int64(2) != 0, row.Int64(3), row.Int64(4)}
			if row.Text(0) == string(but) {
				of = &one
				return nil
			}
			others = append(others, one)
			return nil
		})
	return others, of, err
}

// admit checks, as part of the transaction that records it, whether a computer may become what r
// says. All that create, start, resume, fork, restore and resize computers call it. Only an
// increase is checked, so that a lowered limit does not forbid what exists.
//
// Errors: TooMany, by a limit of its tenant, an exhausted budget, or for lack of host memory (see
// [room]).
func (t table) admit(tx *db.Tx, r record) error {
	others, was, err := allotments(tx, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	limit, err := limitOf(tx, r.Tenant)
	if err != nil {
		return err
	}
	is := r.allotment()
	if was != nil && was.running && r.State == holt.ComputerPaused {
		is.running = true // a restore takes it through a pause
	}
	var before allotment
	if was != nil {
		before = *was
	}
	if is.running && !before.running {
		if err := checkBudgets(tx, r); err != nil {
			return err
		}
	}
	one := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	for _, d := range []dimension{
		{"max-computers", "computer", "", "delete one", int64(limit.MaxComputers), one(was != nil), 1, func(allotment) int64 { return 1 }},
		{"max-running", "running computer", "", "pause or stop one", int64(limit.MaxRunning), one(before.running), one(is.running), func(s allotment) int64 { return one(s.running) }},
		{"max-memory-mb", "", "MiB of memory", "pause or stop one", limit.MaxMemoryMB, before.memoryMB(), is.memoryMB(), allotment.memoryMB},
		{"max-disk-mb", "", "MiB of disks", "delete one", limit.MaxDiskMB, before.diskMB, is.diskMB, func(s allotment) int64 { return s.diskMB }},
	} {
		if err := d.admit(r, others); err != nil {
			return err
		}
	}
	if is.memoryMB() > before.memoryMB() {
		return t.room.admit(tx, r)
	}
	return nil
}

// dimension is one limit of a tenant.
type dimension struct {
	flag           string
	noun, unit     string // which of both: what is counted, or measured
	hint           string
	limit, was, is int64
	of             func(allotment) int64
}

// most is the limit with its unit.
func (d dimension) most() string {
	if d.unit != "" {
		return fmt.Sprintf("%d %s", d.limit, d.unit)
	}
	return holt.CountOf(d.limit, d.noun)
}

// admit refuses an increase beyond the limit.
func (d dimension) admit(r record, others []allotment) error {
	if d.limit == 0 || d.is <= d.was {
		return nil
	}
	used, tenant := d.was, r.Tenant
	var by []string
	if d.was > 0 {
		by = append(by, r.Name)
	}
	for _, s := range others {
		if n := d.of(s); n > 0 {
			used += n
			by = append(by, s.name)
		}
	}
	if used-d.was+d.is <= d.limit {
		return nil
	}
	e := holt.Errorf(holt.TooMany, "the tenant %s is limited to %s and has %d%s; this needs %d more", tenant, d.most(), used, namesOf(by), d.is-d.was).
		WithHint("%s, or raise the limit: holt limit set --tenant %s --%s N", d.hint, tenant, d.flag)
	e.Detail = holt.LimitReached{Tenant: tenant, Limit: strings.ReplaceAll(d.flag, "-", "_"), Max: d.limit, Used: used, Asked: d.is - d.was}
	return e
}

// namesOf lists a few names in parentheses.
func namesOf(names []string) string {
	const most = 5
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		return fmt.Sprintf(" (%s and %s)", strings.Join(names[:most], ", "), holt.CountOf(len(names)-most, "other"))
	}
	return " (" + strings.Join(names, ", ") + ")"
}

func limitOf(tx *db.Tx, tenant string) (l holt.Limit, err error) {
	l.Tenant = tenant
	err = tx.Query(`SELECT computers, running, memory_mb, disk_mb, run_ms FROM tenant_limit WHERE tenant = ?`, []any{tenant}, func(row *db.Row) error {
		l.MaxComputers, l.MaxRunning, l.MaxMemoryMB, l.MaxDiskMB, l.MaxRunMS = int(row.Int64(0)), int(row.Int64(1)), row.Int64(2), row.Int64(3), row.Int64(4)
		return nil
	})
	return l, err
}

// TenantLimits is the limits of tenants for all their computers together.
type TenantLimits struct{ *registry }

func (s *Store) TenantLimits() *TenantLimits { return s.tenantLimits }

// Get returns the limits of a tenant and what it uses. An unknown tenant has no limits.
func (t *TenantLimits) Get(ctx context.Context, tenant string) (l holt.Limit, err error) {
	if tenant, err = holt.ParseTenant(tenant); err != nil {
		return l, err
	}
	err = read(ctx, t.cfg.DB, func(tx *db.Tx) error {
		l, err = limitAndUse(tx, tenant)
		return err
	})
	return l, err
}

func limitAndUse(tx *db.Tx, tenant string) (holt.Limit, error) {
	l, err := limitOf(tx, tenant)
	if err != nil {
		return l, err
	}
	all, _, err := allotments(tx, tenant, "")
	for _, s := range all {
		l.Used.Computers++
		l.Used.DiskMB += s.diskMB
		l.Used.MemoryMB += s.memoryMB()
		if s.running {
			l.Used.Running++
		}
	}
	return l, err
}

// List returns those of the default tenant and of all tenants with limits or computers, sorted by
// name.
func (t *TenantLimits) List(ctx context.Context) (list []holt.Limit, err error) {
	err = read(ctx, t.cfg.DB, func(tx *db.Tx) error {
		var names []string
		err := tx.Query(`SELECT tenant FROM tenant_limit UNION SELECT tenant FROM computer UNION SELECT ? ORDER BY 1`, []any{holt.DefaultTenant}, func(row *db.Row) error {
			names = append(names, row.Text(0))
			return nil
		})
		for _, name := range names {
			if err != nil {
				return err
			}
			var l holt.Limit
			l, err = limitAndUse(tx, name)
			list = append(list, l)
		}
		return err
	})
	return list, err
}

// Set changes the limits of a tenant at once. What exists stays.
//
// Errors: InvalidArgument, Forbidden (the caller is no admin), TooMany tenants.
func (t *TenantLimits) Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (l holt.Limit, err error) {
	if tenant, err = holt.ParseTenant(tenant); err != nil {
		return l, err
	}
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		return l, holt.Errorf(holt.Forbidden, "this token cannot change limits").WithHint("use a token with the scope admin")
	}
	return idempotency.Once(ctx, t.cfg.Keys, idempotency.Call[holt.Limit]{Key: key, Method: "limit.set", Request: []any{tenant, change}, Act: func(ctx context.Context, _ *idempotency.Claim) (holt.Limit, error) {
		return t.set(ctx, tenant, change)
	}})
}

func (t *TenantLimits) set(ctx context.Context, tenant string, change holt.LimitChange) (l holt.Limit, err error) {
	err = writeSync(ctx, t.cfg.DB, func(tx *db.Tx) error {
		if l, err = limitAndUse(tx, tenant); err != nil {
			return err
		}
		if err := change.Apply(&l); err != nil {
			return err
		}
		if n, _, err := textOf(tx, `SELECT count(*) >= ?2 FROM tenant_limit WHERE tenant <> ?1`, tenant, holt.MaxTenants); err != nil || n == "1" {
			return orTooMany(err)
		}
		return tx.Exec(`INSERT OR REPLACE INTO tenant_limit (tenant, computers, running, memory_mb, disk_mb, run_ms) VALUES (?, ?, ?, ?, ?, ?)`,
			tenant, l.MaxComputers, l.MaxRunning, l.MaxMemoryMB, l.MaxDiskMB, l.MaxRunMS)
	})
	if err == nil {
		t.log.InfoContext(ctx, "limits changed", "tenant", tenant, "max_computers", l.MaxComputers, "max_running", l.MaxRunning,
			"max_memory_mb", l.MaxMemoryMB, "max_disk_mb", l.MaxDiskMB, "max_run_ms", l.MaxRunMS)
	}
	return l, err
}

func orTooMany(err error) error {
	if err != nil {
		return err
	}
	return holt.Errorf(holt.TooMany, "%d tenants have limits, which is the maximum", holt.MaxTenants)
}
