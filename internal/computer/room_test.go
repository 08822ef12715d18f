package computer

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
)

// host states a host's memory, MiB, and what computers' machines have taken of it by now.
func (w *idleWorld) host(total, available int64, has map[holt.ComputerID]int64) {
	w.table.room.host = func() (int64, int64) { return total * mib, available * mib }
	w.table.room.overhead = func(string) int64 { return 128 * mib }
	w.table.room.has = func(id holt.ComputerID) int64 { return has[id] * mib }
}

// makesIn makes a computer of a size when there is room.
func (w *idleWorld) makesIn(name string, memoryMB int) (r record, err error) {
	err = w.idler.withRoom(w.t.Context(), func() error {
		r, err = w.makes(w.t.Context(), name, "", func(r *record) { r.MemoryMB = memoryMB })
		return err
	})
	return r, err
}

// lacks wants an error that the host has no memory, which says these things.
func (w *idleWorld) lacks(err error, says ...string) {
	w.t.Helper()
	e := holt.AsError(err)
	if e == nil || e.Code != holt.TooMany || e.Hint == "" {
		w.t.Fatalf("%+v", e)
	}
	if _, ok := holt.LacksMemory(err); !ok {
		w.t.Errorf("its detail is %#v", e.Detail)
	}
	for _, s := range says {
		if !strings.Contains(e.Message+"\n"+e.Hint, s) {
			w.t.Errorf("%q; %q does not say %q", e.Message, e.Hint, s)
		}
	}
}

// TestRoom: what runs was promised memory that it may not have taken yet, and nothing else runs beside that than what
// the host has left. What is idle makes room, what is in use does not.
func TestRoom(t *testing.T) {
	w := newIdleWorld(t)
	w.r.MemoryMB, w.r.IdleTimeout = 1024, holt.IdleTimeout(15*time.Minute)
	w.ok(w.table.save(t.Context(), *w.r))
	w.host(4096, 3000, map[holt.ComputerID]int64{w.r.ID: 152}) // 1000 are still to be taken, 256 are kept
	bohr, err := w.makesIn("bohr", 1000)
	w.ok(err)
	use := w.begins("make")
	_, err = w.makesIn("curie", 512)
	w.lacks(err, "no memory for curie: it needs 640 MiB with overhead, and 616 MiB are left", "pause or stop a running computer")
	_, err = w.makesIn("curie", 4000)
	w.lacks(err, "the host has 4096 MiB; request at most 3712")
	_, err = w.table.find(t.Context(), "curie")
	if holt.CodeOf(err) != holt.NotFound {
		t.Errorf("half-made: %v", err)
	}
	if _, err := w.makesIn("dirac", 488); err != nil { // exactly
		t.Error(err)
	}
	grown := bohr
	grown.want(1, 1001)
	w.lacks(w.table.saveAdmitted(t.Context(), grown), "no memory for bohr")

	w.ends(use)
	w.now = w.now.Add(10 * time.Minute)
	w.passes(0)
	w.uses.used(w.r.ID, holt.Use{Kind: holt.UseCall}) // just now
	w.now = w.now.Add(roomIdle / 2)
	w.passes(0)
	_, err = w.makesIn("curie", 512)
	w.lacks(err, "einstein is idle: free its memory with holt computer pause einstein")
	w.now = w.now.Add(roomIdle)
	w.passes(0)
	_, err = w.makesIn("curie", 512)
	w.ok(err)
	if r := w.is(); r.State != holt.ComputerPaused || r.PausedBy != pausedByMemory {
		t.Errorf("einstein is %s by %q", r.State, r.PausedBy)
	}
	r := w.is()
	r.State = holt.ComputerStarting
	w.lacks(w.table.saveAdmitted(t.Context(), r), "no memory for einstein") // another has its place
}

// TestRoomAtOnce: of many that come at once exactly as many are let in as the host has memory for, also beside
// the machine of a template.
func TestRoomAtOnce(t *testing.T) {
	w := newIdleWorld(t)
	w.begins("make")
	w.host(100000, 5000+640+5*640, nil) // 5000 are kept, and einstein takes 128
	leave, err := w.table.room.reserve(t.Context(), w.cfg.DB, "the template base", record{Computer: holt.Computer{MemoryMB: 512 - 128}}, false)
	w.ok(err)
	var in atomic.Int32
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			_, err := w.makes(t.Context(), "", "", nil)
			if err == nil {
				in.Add(1)
			} else if _, full := holt.LacksMemory(err); !full {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if in.Load() != 5 {
		t.Errorf("%d of 5 were let in", in.Load())
	}
	_, err = w.table.room.reserve(t.Context(), w.cfg.DB, "the template base", record{Computer: holt.Computer{MemoryMB: 512}}, false)
	w.lacks(err, "no memory for the template base")
	leave()
	_, err = w.makes(t.Context(), "", "", func(r *record) { r.MemoryMB = 384 })
	w.ok(err)
	w.again()
	_, err = w.makes(t.Context(), "", "", nil)
	w.lacks(err)
	w.table.room.times = 1.2
	_, err = w.makes(t.Context(), "", "", nil)
	w.ok(err)
}

// again is the store of a new daemon, which knows what the rows say.
func (w *idleWorld) again() {
	host := w.table.room
	cfg := w.cfg
	w.Store = newStore(w.t.Context(), cfg)
	w.table.room.host, w.table.room.overhead, w.table.room.times = host.host, host.overhead, host.times
	w.reopens()
	w.machines.put(w.r.ID, w.l)
	w.table.room.has = host.has
}

// TestRoomOfJobs: jobs leave a quarter of the host's memory to those who do not wait, and count others that have begun
// as computers once they have one.
func TestRoomOfJobs(t *testing.T) {
	w := newIdleWorld(t)
	w.host(8192, 2048+128+3*(1024+128), nil) // einstein takes 128
	job := holt.NewJobID()
	begun := map[holt.JobID]int{job: 1024, holt.NewJobID(): 1024}
	w.ok(w.Room(t.Context(), 1024, begun))
	made, err := w.makes(t.Context(), "job", "", func(r *record) { r.MemoryMB, r.Job = 1024, job })
	w.ok(err)
	w.ok(w.Room(t.Context(), 1024, begun))
	w.lacks(w.Room(t.Context(), 1025, begun), "no memory for another job")
	made.State = holt.ComputerPaused
	w.ok(w.table.save(t.Context(), made))
	w.lacks(w.Room(t.Context(), 1025, begun), "no memory for another job") // it is to go on
	made.State = holt.ComputerRunning
	w.ok(w.table.save(t.Context(), made))
	_, err = w.makes(context.WithoutCancel(t.Context()), "mine", "", func(r *record) { r.MemoryMB = 2048 })
	w.ok(err)
}

// TestWorkspaceSize: what computers' workspaces may hold counts for their tenant, and a quota that changes it does.
func TestWorkspaceSize(t *testing.T) {
	w := newIdleWorld(t)
	ctx := t.Context()
	for _, wrong := range []holt.ComputerSpec{{WorkspaceSizeMB: -1}, {WorkspaceSizeMB: mostDiskSize + 1}, {Workspace: "notes", WorkspaceSizeMB: 1}} {
		if _, err := shape(wrong); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if spec, err := shape(holt.ComputerSpec{}); err != nil || spec.WorkspaceSizeMB != 0 || WorkspaceQuota(0) != (holt.Quota{}) {
		t.Errorf("%+v, %v", spec, err)
	}
	if spec, err := shape(holt.ComputerSpec{Workspace: "notes"}); err != nil || spec.WorkspaceSizeMB != 0 {
		t.Errorf("%+v, %v", spec, err)
	}
	owned := func(r *record) { r.owned = true }
	noether, err := w.makes(ctx, "noether", "", owned)
	if w.ok(err); noether.WorkspaceSizeMB != 0 {
		t.Errorf("without a limit: %d", noether.WorkspaceSizeMB)
	}
	w.limits(holt.LimitChange{MaxDiskMB: ptr(int64(30000))})
	curie, err := w.makes(ctx, "curie", "", owned)
	if w.ok(err); curie.WorkspaceSizeMB != holt.DefaultWorkspaceMB {
		t.Errorf("with a limit: %d", curie.WorkspaceSizeMB)
	}
	if _, err := w.makes(ctx, "fork", noether.ID, owned); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "has no size limit") {
		t.Errorf("a fork that nothing bounds: %v", err)
	}
	w.limits(holt.LimitChange{MaxDiskMB: ptr(int64(0))})
	w.ok(write(ctx, w.cfg.DB, func(tx *db.Tx) error {
		return tx.Exec(`DELETE FROM computer WHERE id IN (?, ?)`, noether.ID, curie.ID)
	}))
	bohr, err := w.makes(ctx, "bohr", "", func(r *record) { r.WorkspaceSizeMB, r.owned = 500, true })
	w.ok(err)
	w.limits(holt.LimitChange{MaxDiskMB: ptr(int64(1800))})
	refused := func(bytes int64, says string) {
		t.Helper()
		err := w.Guests().Bounded(ctx, bohr.workspaceID, bytes)
		if holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), says) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	refused(801*mib, "is limited to 1800 MiB of disks and has 1500 (bohr); this needs 301 more")
	refused(0, "has no size limit")
	w.ok(w.Guests().Bounded(ctx, bohr.workspaceID, 800*mib-1))
	l, err := w.TenantLimits().Get(ctx, "")
	w.ok(err)
	if l.Used.DiskMB != 1800 {
		t.Errorf("%+v", l.Used)
	}
	w.ok(w.Guests().Bounded(ctx, holt.NewWorkspaceID(), 1<<50)) // no computer's
	w.limits(holt.LimitChange{MaxDiskMB: ptr(int64(0))})
	w.ok(w.Guests().Bounded(ctx, bohr.workspaceID, 0))
	if got, err := w.Get(ctx, "bohr"); err != nil || got.WorkspaceSizeMB != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
