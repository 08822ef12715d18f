package computer

import (
	"context"
	"errors"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/workspace"
)

// A sync that takes longer than a guest may stand is not waited for while it does, but before
// the snapshot is undone.
func TestSyncWithin(t *testing.T) {
	begun, slow := make(chan bool), make(chan bool)
	s := &syncing{fsync: func() error { begun <- true; <-slow; return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if err := s.within(ctx); holt.CodeOf(err) != holt.Timeout {
		t.Error(err)
	}
	close(slow)
	s.wait()
}

// writing is a machine whose guest writes to its workspace until it stands.
type writing struct {
	machine.Machine
	t  *testing.T
	ws *workspace.Workspace
}

func (m *writing) synced() bool {
	s := m.ws.Stat()
	return s.JournalSynced >= s.JournalEnd
}

func (m *writing) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	if _, err := m.ws.Tree().Create(workspace.Caller{}, workspace.Root, "late", 0o644); err != nil {
		return machine.SnapshotReport{}, err
	}
	if err := spec.Held(ctx); err != nil {
		return machine.SnapshotReport{}, err
	}
	if !m.synced() {
		m.t.Error("the guest goes on, and the checkpoint is not synced")
	}
	return machine.SnapshotReport{}, errPlanned
}

// The checkpoint, and all that the guest has written before, is synced before it goes on, or ends.
func TestWorkspaceOfSnapshotIsSynced(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ws, err := workspace.Create(t.TempDir()+"/workspace", workspace.Options{})
	w.ok(err)
	t.Cleanup(func() { w.ok(ws.Close()) })
	l := &live{id: w.r.ID, ws: ws, m: &writing{t: t, ws: ws}}
	for _, end := range []bool{false, true} {
		m := snapshot{Snapshot: holt.Snapshot{ID: holt.NewSnapshotID(), Kind: holt.SnapshotOfFork}}
		if err := w.snapshotter.snapshotMachine(t.Context(), w.r, l, &m, snapshotRequest{verb: "snapshot", durable: true, end: end}); !errors.Is(err, errPlanned) {
			t.Fatal(err)
		}
		_, err := ws.FindCheckpoint(m.checkpoint())
		w.ok(err)
		w.ok(ws.Tree().Unlink(workspace.Caller{}, workspace.Root, "late"))
	}
}
