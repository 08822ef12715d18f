package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
)

// TestAtLimit: a job of a tenant at its limit waits, even if it is the only one, and the try does not count as an attempt. A
// job that exceeds the limit by itself fails at once.
func TestAtLimit(t *testing.T) {
	s, w := open(t)
	refuse := func(asked int64) error {
		e := holt.Errorf(holt.TooMany, "the tenant team-a may have 2048 MiB of memory")
		e.Detail = holt.LimitReached{Tenant: "team-a", Limit: "max_memory_mb", Max: 2048, Used: 2048, Asked: asked}
		return e
	}
	w.mu.Lock()
	w.refuse = refuse(1024)
	w.mu.Unlock()
	ctx := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: "team-a"})
	j, err := s.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits", func() bool {
		j, err := s.Get(t.Context(), j.ID)
		return err == nil && j.State == holt.JobQueued && strings.Contains(j.Reason, "team-a may have 2048 MiB") && j.Attempts == 0
	})
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	eventually(t, "it runs", func() bool { _, _, begun := w.count(); return begun == 1 })
	w.end(0)
	if j = ended(t, s, j.ID); j.State != holt.JobDone || j.Attempts != 1 || j.Tenant != "team-a" || w.tenant != "team-a" {
		t.Errorf("%+v, for %q", j, w.tenant)
	}
	w.mu.Lock()
	w.refuse = refuse(4096)
	w.mu.Unlock()
	if j := ended(t, s, create(t, s, holt.JobSpec{}).ID); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != holt.TooMany {
		t.Errorf("%+v", j)
	}
}

// TestLimitOfAnother: the limit of a tenant delays only its own jobs, and only their reason names it. Waiting jobs do not
// make workspaces again and again.
func TestLimitOfAnother(t *testing.T) {
	s, w := open(t)
	e := holt.Errorf(holt.TooMany, "the tenant team-a may have 1 computer and has 1 (curie)")
	e.Detail = holt.LimitReached{Tenant: "team-a", Limit: "max_computers", Max: 1, Used: 1, Asked: 1}
	w.mu.Lock()
	w.refuse, w.refuseOf = e, "team-a"
	w.mu.Unlock()
	for range 3 * mostAtOnce {
		createOf(t, s, "team-a", 1024)
	}
	mine := createOf(t, s, "team-b", 1024)
	eventually(t, "it runs beside them", func() bool {
		j, err := s.Get(t.Context(), mine.ID)
		if strings.Contains(j.Reason, "curie") {
			t.Fatalf("the reason names another tenant: %q", j.Reason)
		}
		return err == nil && j.RunID != ""
	})
	w.mu.Lock()
	before := w.made
	w.mu.Unlock()
	time.Sleep(4 * pollEvery) // time for further tries, which would be wrong
	w.mu.Lock()
	after := w.made
	w.refuse = nil
	w.mu.Unlock()
	if after-before > 3 {
		t.Errorf("%d workspaces were made for jobs that could not begin", after-before)
	}
	w.end(0)
	ended(t, s, mine.ID)
}

// createOf creates a job of a tenant.
func createOf(t *testing.T, s *Store, tenant string, memoryMB int) holt.Job {
	t.Helper()
	ctx := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant})
	j, err := s.Create(ctx, holt.JobSpec{MemoryMB: memoryMB, Run: holt.RunSpec{Command: "true"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestNoRoomForOneTenant: while the host has no memory for the job of one tenant, jobs of others begin.
func TestNoRoomForOneTenant(t *testing.T) {
	s, w := open(t)
	e := holt.Errorf(holt.TooMany, "the host has no memory for it")
	e.Detail = holt.NoMemory{AskedMB: 4096, NeedMB: 4224, LeftMB: 2048, MostMB: 8192}
	w.mu.Lock()
	w.refuse, w.refuseOf = e, "team-a"
	w.mu.Unlock()
	large := createOf(t, s, "team-a", 3072)
	eventually(t, "it was tried, and waits", func() bool {
		j, err := s.Get(t.Context(), large.ID)
		return err == nil && j.State == holt.JobQueued && strings.Contains(j.Reason, "no memory for it") && j.Attempts == 0
	})
	small := createOf(t, s, "team-b", 1024)
	eventually(t, "another's runs", func() bool {
		j, err := s.Get(t.Context(), small.ID)
		return err == nil && j.RunID != ""
	})
	w.end(0)
	if j := ended(t, s, small.ID); j.State != holt.JobDone {
		t.Errorf("%+v", j)
	}
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	eventually(t, "the large one runs", func() bool { _, _, begun := w.count(); return begun == 2 })
}

// TestTurns: the next job is one of the tenant with the fewest running jobs, however many of another are older.
func TestTurns(t *testing.T) {
	s, w := open(t)
	for range 3 * mostAtOnce {
		createOf(t, s, "team-a", 1024)
	}
	eventually(t, "three run", func() bool { _, _, begun := w.count(); return begun == 3 })
	mine := createOf(t, s, "team-b", 1024)
	eventually(t, "it says why it waits", func() bool {
		j, err := s.Get(t.Context(), mine.ID)
		return err == nil && strings.Contains(j.Reason, "no memory for another job")
	})
	w.end(0)
	eventually(t, "six were begun", func() bool { _, _, begun := w.count(); return begun == 6 })
	eventually(t, "it is one of them", func() bool {
		j, err := s.Get(t.Context(), mine.ID)
		return err == nil && j.RunID != ""
	})
}

// insert stores jobs of a tenant. ended is 0 for open jobs.
func insert(t *testing.T, s *Store, tenant, state string, ended, count int) {
	t.Helper()
	err := s.cfg.DB.Write(t.Context(), func(tx *db.Tx) error {
		for range count {
			id := holt.NewJobID()
			record := fmt.Sprintf(`{"id":%q,"state":%q,"tenant":%q}`, id, state, tenant)
			if err := tx.Exec(`INSERT INTO job (id, record, ended, workspace, inputs) VALUES (?, ?, ?, '', '')`, id, record, ended); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestManyOpenJobs: a tenant has at most 10,000 open jobs, which does not affect another tenant.
func TestManyOpenJobs(t *testing.T) {
	s, _ := open(t)
	insert(t, s, "team-a", "done", 1, 5)
	insert(t, s, "team-a", "queued", 0, mostOpen-1)
	as := func(tenant string) error {
		_, err := s.Create(holt.WithActor(t.Context(), holt.Actor{Tenant: tenant}), holt.JobSpec{Template: "base", Run: holt.RunSpec{Command: "true"}}, "")
		return err
	}
	if err := as("team-a"); err != nil {
		t.Error("the last:", err)
	}
	if err := as("team-a"); holt.CodeOf(err) != holt.TooMany {
		t.Error("one more:", err)
	}
	if err := as("team-b"); err != nil {
		t.Error("another's:", err)
	}
	for question, index := range map[string]string{
		`SELECT 1 FROM job WHERE ` + tenantOf + ` = 'a' AND (ended > 0) = 0`: "job_tenant",
		`SELECT 1 FROM job ` + nextOf:                                        "job_tenant",
		`SELECT 1 FROM job WHERE ` + hasBegun + ` ORDER BY seq`:              "job_begun",
	} {
		plan, given := "", strings.NewReplacer("?1", "'a'", "?2", "'[]'").Replace(question)
		err := s.cfg.DB.Read(t.Context(), func(tx *db.Tx) error {
			return tx.Query(`EXPLAIN QUERY PLAN `+given, nil, func(row *db.Row) error { plan += row.Text(3) + "\n"; return nil })
		})
		if err != nil || !strings.Contains(plan, index) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("the query reads jobs of other tenants: %v\n%s\n%s", err, question, plan)
		}
	}
}

// TestTenantsKeepTheirJobs: many jobs of one tenant displace only its own records.
func TestTenantsKeepTheirJobs(t *testing.T) {
	s, _ := open(t)
	insert(t, s, "team-b", "done", 1, 7)
	insert(t, s, "team-a", "done", 1, holt.JobsKept+50)
	insert(t, s, "default", "done", 1, 3)
	if err := s.tidy(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int{"team-a": holt.JobsKept, "team-b": 7, "default": 3} {
		all, err := s.List(holt.WithActor(t.Context(), holt.Actor{Tenant: tenant}), "", holt.MostPerPage)
		if err != nil || len(all) != want {
			t.Errorf("%d jobs of %s are kept, want %d; %v", len(all), tenant, want, err)
		}
	}
}
