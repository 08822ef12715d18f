package computer

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
)

// makes puts a computer on record as a create or a fork does; "" is no parent.
func (w *keptWorld) makes(ctx context.Context, name string, parent holt.ComputerID, change func(*record)) (record, error) {
	r := &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: name, State: holt.ComputerCreating, MemoryMB: 512, DiskSizeMB: 1000, Tenant: holt.TenantOf(ctx)},
		workspaceID: holt.NewWorkspaceID()}
	if parent != "" {
		r.Parent = &holt.Origin{ID: parent}
	}
	if change != nil {
		change(r)
	}
	err := w.table.insert(ctx, r, nil, func(string) bool { return false }, nothingWith)
	return *r, err
}

// limits sets some of the default tenant.
func (w *keptWorld) limits(c holt.LimitChange) {
	w.t.Helper()
	_, err := w.TenantLimits().Set(w.t.Context(), "", c, "")
	w.ok(err)
}

func ptr[T any](v T) *T { return &v }

// TestLimits: what takes more than a tenant may have is refused, and says by what; what is there stays.
func TestLimits(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.cfg.Keys = idempotency.New(w.cfg.DB)
	w.r.MemoryMB, w.r.DiskSizeMB = 1024, 4096
	w.ok(w.table.save(t.Context(), *w.r))
	ctx := t.Context()
	refused := func(err error, says ...string) {
		t.Helper()
		e := holt.AsError(err)
		if e == nil || e.Code != holt.TooMany || e.Hint == "" {
			t.Fatalf("%v", err)
		}
		for _, s := range says {
			if !strings.Contains(e.Message+e.Hint, s) {
				t.Errorf("%q; %q does not say %q", e.Message, e.Hint, s)
			}
		}
		if _, ok := e.Detail.(holt.LimitReached); !ok {
			t.Errorf("its detail is %#v", e.Detail)
		}
	}
	// Memory: only of those that run.
	w.limits(holt.LimitChange{MaxMemoryMB: ptr(int64(1024 + 511))})
	_, err := w.makes(ctx, "bohr", "", nil)
	refused(err, "the tenant default is limited to 1535 MiB of memory and has 1024 (einstein)", "512 more", "--max-memory-mb")
	w.r.State = holt.ComputerStopped
	w.ok(w.table.save(ctx, *w.r))
	bohr, err := w.makes(ctx, "bohr", "", nil)
	w.ok(err)
	w.r.State = holt.ComputerStarting
	refused(w.table.saveAdmitted(ctx, *w.r), "has 512 (bohr)", "1024 more")
	w.r.State = holt.ComputerStopped
	bohr.want(1, 1600)
	refused(w.table.saveAdmitted(ctx, bohr), "1088 more") // a resize
	bohr.want(0, 512)
	// Less than there is: what is there stays, and may take less.
	w.limits(holt.LimitChange{MaxMemoryMB: ptr(int64(0)), MaxComputers: ptr(1), MaxDiskMB: ptr(int64(10))})
	bohr.State = holt.ComputerRunning
	w.ok(w.table.saveAdmitted(ctx, bohr))
	bohr.DiskSizeMB++
	refused(w.table.saveAdmitted(ctx, bohr), "10 MiB of disks and has 5096 (bohr, einstein)", "this needs 1 more")
	_, err = w.makes(ctx, "curie", "", nil)
	refused(err, "is limited to 1 computer and has 2")
	// Of others' limits a tenant knows nothing; a fork is its parent's, whoever forks.
	ctxA := holt.WithActor(ctx, holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: "team-a"})
	curie, err := w.makes(ctxA, "curie", "", nil)
	w.ok(err)
	_, err = w.makes(ctxA, "bohr-1", bohr.ID, nil)
	refused(err, "the tenant default")
	if got, err := w.Get(ctx, string(curie.ID)); err != nil || got.Tenant != "team-a" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := w.TenantLimits().Set(ctxA, "team-a", holt.LimitChange{MaxRunning: ptr(9)}, ""); holt.CodeOf(err) != holt.Forbidden {
		t.Errorf("a tenant raises its own limit: %v", err)
	}
	all, err := w.TenantLimits().List(ctx)
	w.ok(err)
	if len(all) != 2 || all[0].Used != (holt.TenantUse{Computers: 2, Running: 1, MemoryMB: 512, DiskMB: 5096}) || all[1].Tenant != "team-a" || all[1].Used.Computers != 1 {
		t.Errorf("%+v", all)
	}
}

// TestLimitOfResume: a paused computer for whose machine there is no place stays paused, and goes on once there is.
func TestLimitOfResume(t *testing.T) {
	w, _, _ := paused(t)
	w.cfg.Keys = idempotency.New(w.cfg.DB)
	w.limits(holt.LimitChange{MaxRunning: ptr(1)})
	bohr, err := w.makes(t.Context(), "bohr", "", nil)
	w.ok(err)
	if _, err := w.Memory().Resume(t.Context(), "einstein", ""); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "(bohr)") {
		t.Fatalf("resumed beside another: %v", err)
	}
	if r, err := w.table.find(t.Context(), "einstein"); err != nil || r.State != holt.ComputerPaused || r.disk != w.r.disk {
		t.Errorf("it is %+v, %v", r, err)
	}
	bohr.State = holt.ComputerStopped
	w.ok(w.table.save(t.Context(), bohr))
	w.r.State = holt.ComputerResuming
	w.ok(w.table.saveAdmitted(t.Context(), *w.r))
}

// TestLastPlace: of many that come at once exactly as many are let in as there are places.
func TestLastPlace(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.cfg.Keys = idempotency.New(w.cfg.DB)
	w.limits(holt.LimitChange{MaxComputers: ptr(4), MaxMemoryMB: ptr(int64(4 * 512))})
	var in atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			_, err := w.makes(t.Context(), "", "", nil)
			switch holt.CodeOf(err) {
			case "":
				in.Add(1)
			case holt.TooMany:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if in.Load() != 3 { // einstein is there
		t.Errorf("%d of 3 places were taken", in.Load())
	}
}

// One is not said as several are.
func TestLimitOfOne(t *testing.T) {
	d := dimension{"max-running", "running computer", "", "pause or stop one", 1, 0, 1, func(allotment) int64 { return 1 }}
	err := d.admit(record{Computer: holt.Computer{Name: "curie", Tenant: "default"}}, []allotment{{name: "einstein"}})
	if want := "the tenant default is limited to 1 running computer and has 1 (einstein); this needs 1 more"; err == nil || holt.AsError(err).Message != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if got := namesOf([]string{"a", "b", "c", "d", "e", "f"}); got != " (a, b, c, d, e and 1 other)" {
		t.Errorf("got %q", got)
	}
}
