package computer

import (
	"context"
	"errors"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
)

// A resume that can neither go on nor be undone, as on a full disk, is undone by the next stop, resume or
// use of the computer. What another daemon has left half-way is said, not waited for.
func TestStuckResume(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.cfg.Engines.Default, w.cfg.Workspaces, w.cfg.Dir = &diskMaking{}, damaged{}, t.TempDir()
	fails := map[string]bool{}
	w.cfg.Fail = func(point string) error {
		if fails[point] {
			return errPlanned
		}
		return nil
	}
	in := func(want holt.ComputerState) {
		t.Helper()
		r, err := w.table.find(ctx, string(w.r.ID))
		if w.ok(err); r.State != want || r.disk != w.r.disk {
			t.Errorf("it is %s with %s, want %s with %s", r.State, r.disk, want, w.r.disk)
		}
	}
	for _, use := range []struct {
		name string
		act  func() error
		err  error
		then holt.ComputerState
	}{
		{"resume", func() error { _, err := w.pauser.resume(ctx, "einstein"); return err }, errPlanned, holt.ComputerPaused},
		{"start", func() error { _, err := w.start(ctx, "einstein"); return err }, errPlanned, holt.ComputerPaused},
		{"wake", func() error { _, _, err := w.waker.wake(ctx, "einstein", holt.Use{}); return err }, errPlanned, holt.ComputerPaused},
		{"stop", func() error { _, err := w.stop(ctx, "einstein"); return err }, nil, holt.ComputerStopped},
	} {
		t.Run(use.name, func(t *testing.T) {
			m := w.pauses()
			clear(fails)
			fails["resume/open"], fails["undo-resume/row"] = true, true
			if _, err := w.pauser.resume(ctx, "einstein"); !errors.Is(err, errPlanned) {
				t.Fatal(err)
			}
			in(holt.ComputerResuming)
			if err := use.act(); !errors.Is(err, errPlanned) { // it cannot be undone yet
				t.Errorf("while it cannot be undone: %v", err)
			}
			in(holt.ComputerResuming)
			clear(fails)
			fails["resume/row"] = true // the next resume
			if err := use.act(); !errors.Is(err, use.err) {
				t.Error(err)
			}
			in(use.then)
			if next := w.row(m.ID).next; next != "" {
				t.Errorf("the disk %s is still to be its own", next)
			}
		})
	}
	for _, state := range []holt.ComputerState{holt.ComputerResuming, holt.ComputerPausing} {
		w.r.State, w.r.Reason = state, "the journal is damaged"
		w.ok(w.table.save(ctx, *w.r))
		if _, _, err := w.waker.wake(ctx, "einstein", holt.Use{}); holt.CodeOf(err) != holt.Unavailable {
			t.Errorf("use of one that another daemon has left %s: %v", state, err)
		}
	}
}

// diskMaking is an engine that makes disks, of machines that have ended.
type diskMaking struct{ endedEngine }

func (*diskMaking) CreateDisk(context.Context, string, machine.Base, int) error { return nil }
