package computer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/workspace"
)

// photographed is a machine that runs, and whose memory can be kept: there is none of it.
type photographed struct {
	machine.Machine
	done  chan struct{}
	disk  string
	taken int
}

func (m *photographed) Done() <-chan struct{} { return m.done }

func (m *photographed) Disk() string { return m.disk }

func (m *photographed) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	m.taken++
	if err := spec.Held(ctx); err != nil {
		return machine.SnapshotReport{}, err
	}
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return machine.SnapshotReport{}, err
	}
	m.disk = spec.Disk
	return machine.SnapshotReport{}, machine.Image{Engine: "none", Hardware: []byte("{}"), Spec: machine.Spec{CPUs: 1, MemoryMB: 1}}.Write(spec.Dir, false)
}

// crowded are workspaces of which some have names.
type crowded struct {
	lasting
	names map[string]bool
}

func (s *crowded) Find(_ context.Context, ref string) (holt.WorkspaceID, string, error) {
	if s.names[ref] {
		return holt.NewWorkspaceID(), ref, nil
	}
	return "", "", holt.Errorf(holt.NotFound, "there is no workspace %q", ref)
}

// runsOn has a computer run on a machine whose memory can be kept.
func (w *keptWorld) runsOn(spaces Workspaces) *photographed {
	w.t.Helper()
	vm := &photographed{done: make(chan struct{})}
	ws, err := workspace.Create(w.t.TempDir()+"/workspace", workspace.Options{})
	w.ok(err)
	w.t.Cleanup(func() { w.ok(ws.Close()) })
	w.cfg.Engines.Default, w.cfg.Workspaces = &remembering{layered{base: "none"}}, spaces
	l := &live{id: w.r.ID, m: vm, ws: ws, log: slog.New(slog.DiscardHandler), up: make(chan struct{}), stood: newNotification()}
	l.ctx, l.cancel = context.WithCancel(w.t.Context())
	w.t.Cleanup(l.close)
	w.machines.put(w.r.ID, l)
	return vm
}

// all are the snapshots of the computer, oldest first.
func (w *keptWorld) all() (ids []holt.SnapshotID) {
	w.t.Helper()
	list, err := w.snapshots.list(w.t.Context(), `ORDER BY created, id`)
	w.ok(err)
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	return ids
}

// A fork under a name that a computer or a workspace has is refused before a snapshot is taken for
// it; and one that cannot be made leaves none.
func TestRefusedForkTakesNoSnapshot(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.take(holt.SnapshotOfPause)
	vm := w.runsOn(&crowded{names: map[string]bool{"shop": true}})
	for _, name := range []string{w.r.Name, "shop"} {
		if _, err := w.Memory().Fork(ctx, "einstein", holt.ComputerForkSpec{Name: name}, ""); holt.CodeOf(err) != holt.AlreadyExists {
			t.Errorf("a fork called %s: %v", name, err)
		}
	}
	if n := len(w.all()); vm.taken != 0 || n != 1 {
		t.Errorf("%d snapshots, %d of them taken for forks under names that others have", n, vm.taken)
	}
	w.cfg.Fail = func(point string) error {
		if point == "fork/row" {
			return errPlanned
		}
		return nil
	}
	for _, count := range []int{1, 2} {
		forked, err := w.Memory().Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr", Count: count}, "")
		if count == 1 && !errors.Is(err, errPlanned) || count > 1 && (err != nil || forked.Snapshot != "" || len(forked.Computers) != count) {
			t.Errorf("%d that cannot be made: %+v %v", count, forked, err)
		}
		if n := len(w.all()); vm.taken != count || n != 1 {
			t.Errorf("after %d that could not be made there are %d snapshots; %d were taken", count, n, vm.taken)
		}
	}
}
