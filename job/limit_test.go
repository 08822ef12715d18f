package job

import (
	"strings"
	"testing"

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
