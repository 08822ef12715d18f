package computer

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// going is a machine that runs.
type going struct{ machine.Machine }

func (going) Done() <-chan struct{} { return nil }

func (going) Disk() string { return "" }

func openKeys(t *testing.T) (*idempotency.Keys, *db.DB) {
	t.Helper()
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return idempotency.New(d), d
}

// called leaves the key of a call that a killed daemon had begun: it had made something, if ref says so.
func (w *keptWorld) called(key, method string, request any, ref string) {
	w.t.Helper()
	_, err := idempotency.Once(w.t.Context(), w.cfg.Keys, idempotency.Call[struct{}]{Key: key, Method: method, Request: request,
		Act: func(ctx context.Context, claim *idempotency.Claim) (none struct{}, err error) {
			return none, w.cfg.DB.Write(ctx, func(tx *db.Tx) error { return claim.Bind(tx, ref) })
		}})
	w.ok(err)
	w.ok(w.cfg.DB.Write(w.t.Context(), func(tx *db.Tx) error { return tx.Exec(`UPDATE idempotency SET answer = NULL WHERE key = ?`, key) }))
}

// keyed is a world whose computer runs and whose calls have keys.
func keyed(t *testing.T) *keptWorld {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	w.cfg.Keys, w.cfg.Engines.Default, w.cfg.Dir = idempotency.New(w.cfg.DB), &remembering{}, t.TempDir()
	return w
}

// A repeated snapshot whose first call was undone is found by the third: its key stands for what it takes.
func TestSnapshotIsRepeatedTwice(t *testing.T) {
	w := keyed(t)
	w.machines.put(w.r.ID, &live{m: going{}})
	defer w.machines.put(w.r.ID, nil)
	spec := holt.SnapshotSpec{Name: "one"}
	first := string(holt.NewSnapshotID())
	w.called("key", "computer.snapshot", []any{"einstein", spec}, first)
	bound := ""
	w.cfg.Fail = func(point string) error {
		if point == "snapshot/memory" {
			var err error
			bound, err = idempotency.ClaimOf("key").Bound(context.Background(), w.cfg.DB)
			return errors.Join(errPlanned, err)
		}
		return nil
	}
	if _, err := w.Memory().Snapshot(t.Context(), "einstein", spec, "key"); !errors.Is(err, errPlanned) {
		t.Fatal(err)
	}
	if _, err := holt.ParseSnapshotID(bound); err != nil || bound == first {
		t.Errorf("the key stands for %q, %v; the first was to be %s", bound, err, first)
	}
}

// forkless is an engine that makes no forks.
type forkless struct{ machine.Engine }

func (forkless) Capabilities() machine.Capabilities { return machine.Capabilities{} }

func (forkless) Name() string { return "forkless" }

// A repeated fork answers with what its own call has made: not with what another had made with the same
// key before that was forgotten, nor with what could not be made.
func TestForkIsRepeated(t *testing.T) {
	for name, made := range map[string]struct {
		state holt.ComputerState
		age   time.Duration // by how much it is older than the use of the key
		found bool
	}{
		"made":          {holt.ComputerRunning, -time.Second, true},
		"stopped since": {holt.ComputerStopped, -time.Second, true},
		"of a day ago":  {holt.ComputerRunning, idempotency.KeyLife + time.Second, false},
		"used anew":     {holt.ComputerRunning, time.Minute, false},
		"failed":        {holt.ComputerFailed, -time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := keyed(t)
			w.cfg.Engines.Default = forkless{}
			spec := holt.ComputerForkSpec{}
			w.called("key", "computer.fork", []any{"einstein", spec}, "")
			one := &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: "einstein-1", State: made.state, CreatedAt: time.Now().Add(-made.age),
				Parent: &holt.Origin{ID: w.r.ID, Snapshot: holt.NewSnapshotID()}}, workspaceID: holt.NewWorkspaceID(), call: "key"}
			w.ok(w.table.insert(t.Context(), one, nil, func(string) bool { return false }, nothingWith))
			out, err := w.Memory().Fork(t.Context(), "einstein", spec, "key")
			if made.found && (err != nil || len(out.Computers) != 1 || out.Computers[0].ID != one.ID || out.Snapshot != one.Parent.Snapshot) {
				t.Errorf("%+v, %v", out, err)
			}
			if !made.found && holt.CodeOf(err) != holt.Unsupported {
				t.Errorf("nothing new was tried: %+v, %v", out, err)
			}
		})
	}
}

// Why a snapshot is not deleted is said as it is.
func TestSnapshotThatStays(t *testing.T) {
	w, _, target := paused(t)
	present := w.pauses()
	w.restoresTo(target, present)
	for _, one := range []struct {
		m    snapshot
		says string
	}{{present, "is paused at"}, {target, "a restore of einstein"}} {
		_, err := w.Snapshots().delete(t.Context(), string(one.m.ID), nil)
		if holt.CodeOf(err) != holt.Conflict || !strings.Contains(err.Error(), one.says) {
			t.Errorf("%v, want %q", err, one.says)
		}
	}
	third := w.take(holt.SnapshotManual)
	unlock, err := w.machines.lock(t.Context(), w.r.ID)
	w.ok(err)
	said := make(chan error)
	go func() {
		_, err := w.Snapshots().delete(t.Context(), string(third.ID), nil)
		said <- err
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		w.machines.mu.Lock()
		waits = w.machines.at(w.r.ID).users > 1
		w.machines.mu.Unlock()
	}
	w.ok(w.snapshots.erase(t.Context(), third.ID)) // another call was faster
	unlock()
	if err := <-said; holt.CodeOf(err) != holt.NotFound {
		t.Errorf("what another call has deleted: %v", err)
	}
}
