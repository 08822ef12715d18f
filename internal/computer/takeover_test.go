package computer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// stuckEngine is an engine whose machines do not answer: none is given up
// before most wait side by side.
type stuckEngine struct {
	machine.Engine
	most int

	mu       sync.Mutex
	now, top int
	once     sync.Once
	full     chan struct{}
}

func (e *stuckEngine) Capabilities() machine.Capabilities { return machine.Capabilities{} }

func (e *stuckEngine) Adopt(context.Context, string) (machine.Machine, error) {
	e.mu.Lock()
	if e.now++; e.now > e.top {
		e.top = e.now
	}
	if e.now == e.most {
		e.once.Do(func() { close(e.full) })
	}
	e.mu.Unlock()
	<-e.full
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now--
	return nil, errors.New("it does not answer")
}

func nothingWith(*db.Tx) error { return nil }

// Machines are taken over side by side, so many at once and no more.
func TestTakeOverSideBySide(t *testing.T) {
	keys, d := openKeys(t)
	all := table{d: d}
	for i := range 2*atOnce - 1 {
		r := record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: fmt.Sprintf("c%d", i), State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID()}
		if err := all.insert(t.Context(), &r, nil, func(string) bool { return false }, nothingWith); err != nil {
			t.Fatal(err)
		}
	}
	e := &stuckEngine{most: atOnce, full: make(chan struct{})}
	s, err := Open(t.Context(), Config{DB: d, Keys: keys, Dir: filepath.Join(t.TempDir(), "computers"), Disks: t.TempDir(), Snapshots: t.TempDir(), Templates: t.TempDir(), Engines: Engines{Default: e}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if e.top != atOnce {
		t.Errorf("%d at once, want %d", e.top, atOnce)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2*atOnce-1 {
		t.Fatalf("%d computers, %v", len(list), err)
	}
	for _, c := range list {
		if !strings.Contains(c.Reason, "does not answer") {
			t.Errorf("%+v", c)
		}
	}
}

// mute is an engine whose machines run and do not answer.
type mute struct{ stuckEngine }

func (*mute) Adopt(context.Context, string) (machine.Machine, error) {
	return nil, errors.New("it does not answer")
}

// usesDisk is a machine that writes to a disk.
type usesDisk struct {
	machine.Machine
	disk string
}

func (w usesDisk) Disk() string { return w.disk }

// A computer whose resume was cut off, and whose machine does not answer then, is on record with the
// disk that this machine writes to: not with the one that nothing was written to while it was paused.
func TestResumingNotAdopted(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	m := w.take(holt.SnapshotOfPause)
	unwritten := holt.NewDiskID()
	w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return w.disks.insert(tx, unwritten, m.disk, &record{image: "digest"}) }))
	w.r.State, w.r.disk = holt.ComputerPaused, unwritten
	w.ok(w.table.save(ctx, *w.r))
	w.ok((&transition{s: w.Store, r: w.r, from: &m}).claimResume(ctx))
	w.cfg.Engines.Default, w.cfg.Dir = &mute{}, t.TempDir()
	kept := func() record {
		t.Helper()
		r, err := w.table.find(ctx, string(w.r.ID))
		w.ok(err)
		return r
	}
	r := kept()
	w.ok((&takeover{transition{s: w.Store, r: &r}}).run(ctx))
	if r := kept(); r.State != holt.ComputerRunning || r.disk != m.next || !r.ungreeted || !strings.Contains(r.Reason, "does not answer") {
		t.Errorf("%s writes to %s, want %s; greeting owed: %v; %q", r.State, r.disk, m.next, r.ungreeted, r.Reason)
	}
	if next := w.row(m.ID).next; next != "" {
		t.Errorf("%s is still to be resumed with %s", m.ID, next)
	}

	// What an earlier holt wrote down is put right once the machine answers.
	r = kept()
	r.disk = m.disk
	w.ok(w.table.save(ctx, r))
	foreign := holt.NewDiskID()
	w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return w.disks.insert(tx, foreign, "", &record{image: "digest"}) }))
	for _, disk := range []string{w.disks.path(m.next), w.disks.path(m.next), "/elsewhere/" + string(m.next) + ".qcow2", w.disks.path(foreign), w.disks.path(m.disk), ""} {
		believed := disk == w.disks.path(m.next)
		if err := (&takeover{transition{s: w.Store, r: &r}}).writesTo(ctx, usesDisk{disk: disk}); believed != (err == nil) || !believed && holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("a machine that writes to %q: %v", disk, err)
		}
		if now := kept(); now.disk != m.next || r.disk != m.next {
			t.Errorf("a machine that writes to %q: on record is %s, want %s", disk, now.disk, m.next)
		}
	}
}

// damaged are workspaces of which some do not open. Nobody gets as far as to use the others.
type damaged struct {
	Workspaces
	some map[holt.WorkspaceID]bool
}

func (d damaged) opens(id holt.WorkspaceID) error {
	if d.some[id] {
		return holt.Errorf(holt.Corrupt, "its journal is damaged")
	}
	return nil
}

func (d damaged) View(_ context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	return nil, nil, cmp.Or(d.opens(id), errors.New("not in this test"))
}

func (d damaged) Take(ctx context.Context, id holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	return d.View(ctx, id)
}

func (d damaged) Forget(_ context.Context, id holt.WorkspaceID, _ string) error { return d.opens(id) }

// endedEngine is an engine whose machines have ended.
type endedEngine struct{ stuckEngine }

func (*endedEngine) Adopt(context.Context, string) (machine.Machine, error) {
	return nil, machine.ErrGone
}

func (*endedEngine) Ended(string) machine.Ending { return machine.Ending{} }

// What was half-done of a computer whose workspace does not open stays so, and the daemon starts with
// the others.
func TestOneDamagedWorkspace(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	bad := w.r
	half := snapshot{Snapshot: holt.Snapshot{ID: holt.NewSnapshotID(), Kind: holt.SnapshotManual, ComputerID: bad.ID, CreatedAt: w.began}, workspace: bad.workspaceID}
	going := w.take(holt.SnapshotManual)
	w.ok(w.snapshots.insert(ctx, w.disks, *bad, half, nil))
	if ok, err := w.snapshots.markDeleting(ctx, going.ID, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { // of a computer that is no more
		return restoreRow{computer: holt.NewComputerID(), snapshot: going.ID, present: half.ID, workspace: bad.workspaceID}.insert(tx)
	}))
	good := &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: "bohr", State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID(), image: "digest"}
	w.ok(w.table.insert(ctx, good, nil, func(string) bool { return false }, nothingWith))
	w.r = good
	other := w.take(holt.SnapshotManual)
	if ok, err := w.snapshots.markDeleting(ctx, other.ID, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}

	cfg := w.cfg
	cfg.Dir, cfg.Templates, cfg.Engines.Default = t.TempDir(), t.TempDir(), &endedEngine{}
	for _, is := range []struct {
		damaged             bool
		bad                 holt.ComputerState
		reason              string
		snapshots, restores int
	}{
		{true, holt.ComputerRunning, "cannot adopt it: its journal is damaged", 2, 1},
		{false, holt.ComputerStopped, "ended while the daemon was not running", 0, 1}, // mended by hand
	} {
		cfg.Workspaces = damaged{some: map[holt.WorkspaceID]bool{bad.workspaceID: is.damaged}}
		if !is.damaged {
			w.ok(w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM snapshot WHERE id = ?`, half.ID) })) // which needs a workspace that opens
		}
		s, err := Open(ctx, cfg)
		if err != nil {
			t.Fatalf("damaged %v: %v", is.damaged, err)
		}
		defer s.Close()
		if c, err := s.Get(ctx, "bohr"); err != nil || c.State != holt.ComputerStopped {
			t.Errorf("damaged %v: the other is %s, %v", is.damaged, c.State, err)
		}
		if c, err := s.Get(ctx, "einstein"); err != nil || c.State != is.bad || !strings.Contains(c.Reason, is.reason) {
			t.Errorf("damaged %v: %s, %q, %v", is.damaged, c.State, c.Reason, err)
		}
		left, err := w.snapshots.list(ctx, ``)
		if err != nil || len(left) != is.snapshots {
			t.Errorf("damaged %v: %d snapshots are left, %v", is.damaged, len(left), err)
		}
		if rows, err := halfRestored(ctx, cfg.DB); err != nil || len(rows) != is.restores {
			t.Errorf("damaged %v: %d restores are left, %v", is.damaged, len(rows), err)
		}
	}
}
