package schedule

import (
	"fmt"
	"strings"
	"testing"

	"holt"
	"holt/internal/store/db"
)

// TestLimits: the limits of schedules of a computer, a tenant and all tenants are independent, and the error names the
// limit. A tenant sees only its own schedules.
func TestLimits(t *testing.T) {
	w := newWorld(t)
	change := func(sql string, args ...any) {
		t.Helper()
		w.ok(w.d.Write(t.Context(), func(tx *db.Tx) error { return tx.Exec(sql, args...) }))
	}
	made := func(tenant, name string) *holt.Computer {
		c := &holt.Computer{ID: holt.NewComputerID(), Name: name, Tenant: tenant, State: holt.ComputerPaused}
		w.computers[c.ID] = c
		change(`INSERT INTO computer (id, name, template, image, state, engine, cpus, memory_mb, disk_mb, workspace, workspace_name, owned, created, tenant)
			VALUES (?1, ?2, '', '', 'paused', '', 1, 1, 1, ?1, ?2, 1, 1, ?3)`, c.ID, c.Name, tenant)
		return c
	}
	s := w.open()
	defer func() { w.ok(s.Close()) }()
	first := w.add(made("default", "first").Name, "first", "@yearly", "1m", nil)
	fill := func(computer holt.ComputerID, most int) {
		change(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?3)
			INSERT INTO schedule SELECT ?2 || n, ?2, 's-' || n, cron, zone, missed, overlap, keep_awake, enabled, spec, created, after, next FROM schedule, n WHERE id = ?1`, first.ID, computer, most)
	}
	refused := func(computer, why string) {
		t.Helper()
		_, err := s.Create(t.Context(), holt.ScheduleSpec{Computer: computer, Name: "more", Cron: "@daily", Spec: holt.RunSpec{Command: "1m"}}, "")
		if holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", computer, err, why)
		}
	}
	for i := range mostOfTenant / mostOfComputer {
		fill(made("team-a", fmt.Sprint("full-", i)).ID, mostOfComputer)
	}
	made("team-a", "eleventh")
	refused("full-0", "full-0 has 100 schedules")
	refused("eleventh", "the tenant team-a has 1000 schedules")
	made("team-b", "bohr")
	w.add("bohr", "nightly", "@daily", "1m", nil)
	if all, err := s.List(holt.WithActor(t.Context(), holt.Actor{Tenant: "team-b"}), ""); err != nil || len(all) != 1 || all[0].Name != "nightly" {
		t.Errorf("team-b sees %d schedules, %v", len(all), err)
	}
	fill("of-others", mostOfAll-mostOfTenant-2)
	refused("bohr", "there are 10000 schedules of all tenants")
}
