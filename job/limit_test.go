package job

import (
	"strings"
	"testing"
	"time"

	"holt"
)

// TestAtLimit: a job of a tenant that has as much as it may waits, though it is alone, and counts no attempt; one that
// wants more than there may ever be fails at once.
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

// TestLimitOfAnother: of a tenant at its limit only its own jobs wait, and only they say why. They are not tried again
// and again, each with a workspace.
func TestLimitOfAnother(t *testing.T) {
	s, w := open(t)
	e := holt.Errorf(holt.TooMany, "the tenant team-a may have 1 computer and has 1 (curie)")
	e.Detail = holt.LimitReached{Tenant: "team-a", Limit: "max_computers", Max: 1, Used: 1, Asked: 1}
	w.mu.Lock()
	w.refuse, w.refuseOf = e, "team-a"
	w.mu.Unlock()
	of := func(tenant string) holt.Job {
		t.Helper()
		j, err := s.Create(holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant}), holt.JobSpec{Run: holt.RunSpec{Command: "true"}}, "")
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	for range mostWaiting + mostAtOnce + 1 { // more than are looked at
		of("team-a")
	}
	mine := of("team-b")
	eventually(t, "it runs beside them", func() bool {
		j, err := s.Get(t.Context(), mine.ID)
		if strings.Contains(j.Reason, "curie") {
			t.Fatalf("it is told of another tenant: %q", j.Reason)
		}
		return err == nil && j.RunID != ""
	})
	w.mu.Lock()
	before := w.made
	w.mu.Unlock()
	time.Sleep(4 * look) // what is not to happen has time to
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
