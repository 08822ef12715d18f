package computer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/engine/machine"
)

// takeOverAll finishes or undoes what a daemon before this one left unfinished, and adopts running
// machines. A failure of one computer, for instance a damaged workspace, does not affect the
// others.
func takeOverAll(ctx context.Context, s *Store) error {
	all, err := s.table.all(ctx)
	if err != nil {
		return err
	}
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, r := range all {
		work.Go(func() error {
			t := &takeover{transition{s: s, r: &r}}
			t.holdImage(ctx)
			if err := s.outputs.tidy(ctx, r.ID); err != nil {
				s.log.ErrorContext(ctx, "clean up output of runs", "computer", r.ID, "err", err)
			}
			if err := t.run(ctx); err != nil {
				t.leave(ctx, err)
			}
			return nil
		})
	}
	work.Wait() // which returns no error
	return ctx.Err()
}

// leave records why a computer could not be recovered. Its row stays, so that the next daemon
// retries.
func (t *takeover) leave(ctx context.Context, why error) {
	t.s.log.ErrorContext(ctx, "recover computer", "computer", t.r.ID, "name", t.r.Name, "state", t.r.State, "err", why)
	r, err := t.s.table.find(ctx, string(t.r.ID))
	if err == nil && r.State != holt.ComputerStopped && r.State != holt.ComputerPaused { // these are what they are
		r.Reason = "the daemon cannot adopt it: " + why.Error()
		err = t.s.table.save(ctx, r)
	}
	if err != nil {
		t.s.log.ErrorContext(ctx, "record failed recovery of computer", "computer", t.r.ID, "err", err)
	}
}

// atOnce bounds concurrent recoveries. A machine that does not answer costs ten seconds.
const atOnce = 16

// holdImage registers the directory of the computer's disk again: the data directory may have been
// moved.
func (t *takeover) holdImage(ctx context.Context) {
	dir := t.s.cfg.dir(t.r.ID)
	if _, err := os.Stat(dir); err != nil || t.r.image == "" {
		return
	}
	if err := t.s.cfg.Images.Hold(ctx, t.r.image, dir); err != nil {
		t.s.log.ErrorContext(ctx, "hold image", "computer", t.r.ID, "image", t.r.image, "error", err)
	}
}

// takeover is the recovery of one computer.
type takeover struct{ transition }

func (t *takeover) run(ctx context.Context) error {
	switch t.r.State {
	case holt.ComputerCreating, holt.ComputerDeleting:
		t.s.log.InfoContext(ctx, "remove unfinished computer", "computer", t.r.ID, "name", t.r.Name, "state", t.r.State)
		if err := t.remove(ctx, "recover"); err != nil {
			t.markFailed(ctx, err)
		}
		return nil
	case holt.ComputerRunning, holt.ComputerStarting, holt.ComputerStopping, holt.ComputerPausing, holt.ComputerResuming:
		return t.adopt(ctx)
	case holt.ComputerFailed:
		return nil
	default:
		return t.s.snapshotter.mend(ctx, t.r, nil)
	}
}

// adopt takes over the computer's machine if it still runs. Waiting for its guest continues in the
// background.
func (t *takeover) adopt(ctx context.Context) error {
	vm, err := t.engine().Adopt(ctx, t.s.cfg.dir(t.r.ID))
	if errors.Is(err, machine.ErrGone) {
		return t.foundGone(ctx)
	}
	if err != nil {
		return t.cannotAdopt(ctx, err)
	}
	ws, release, err := t.s.cfg.Workspaces.Take(ctx, t.r.workspaceID)
	if err != nil {
		vm.Release()
		return t.cannotAdopt(ctx, err)
	}
	restored := t.r.ungreeted
	if t.r.State == holt.ComputerResuming {
		restored = true
		err = t.s.pauser.settleResume(ctx, t.r, true)
	} else {
		err = t.s.snapshotter.mend(ctx, t.r, vm)
	}
	if err == nil {
		err = t.writesTo(ctx, vm)
	}
	if err == nil && t.r.growing { // a daemon before this one was at work on it
		if err := t.r.measure(ctx, vm); err != nil {
			t.s.log.WarnContext(ctx, "get shape of machine", "computer", t.r.ID, "err", err)
		}
	}
	if err != nil {
		release()
		vm.Release()
		return t.cannotAdopt(ctx, err)
	}
	l := newLive(t.s, *t.r, ws, release)
	l.m = vm
	switch {
	case restored:
		l.guest = guestResumedAgain // whether it was the first is not on record
	case t.r.State != holt.ComputerStarting:
		l.guest = guestConfigured
	}
	t.live = l
	l.connect(t.s.shutdown.ctx)
	if err := l.plug(ctx, t.s, true); err != nil {
		t.s.log.ErrorContext(ctx, "start network of computer", "computer", t.r.ID, "err", err)
	}
	t.s.machines.put(t.r.ID, l)
	t.s.supervise(l)
	t.s.log.InfoContext(ctx, "computer adopted", "computer", t.r.ID, "name", t.r.Name, "state", t.r.State, "pid", vm.PID())
	switch t.r.State {
	case holt.ComputerStarting:
		return t.resumeLocked(ctx, t.finishStart)
	case holt.ComputerStopping:
		return t.resumeLocked(ctx, t.finishStop)
	case holt.ComputerRunning:
		if t.r.Reason == "" && !t.r.growing {
			return nil
		}
	}
	// Of one that was being paused or resumed, that its machine runs says all.
	t.r.State, t.r.Reason = holt.ComputerRunning, ""
	err = t.s.table.save(ctx, *t.r)
	if err == nil && t.r.growing {
		t.settleShapeLater()
	}
	return err
}

// itsOther selects a disk directly over or beneath a computer's disk that nothing else uses.
const itsOther = `SELECT id FROM disk WHERE id = ?1 AND (parent = ?2 OR id = (SELECT parent FROM disk WHERE id = ?2))
	AND NOT EXISTS (SELECT 1 FROM computer WHERE disk = ?1) AND NOT EXISTS (SELECT 1 FROM disk WHERE parent = ?1 AND id <> ?2)
	AND NOT EXISTS (SELECT 1 FROM snapshot WHERE disk = ?1 OR next = ?1 AND computer <> ?3)`

// writesTo records which root disk the machine writes to: a daemon that could not reach the machine
// may have recorded another. A compromised machine may lie, so it is believed only if that disk is
// directly over or beneath the recorded one and nothing else uses it.
func (t *takeover) writesTo(ctx context.Context, vm machine.Machine) error {
	name := strings.TrimSuffix(filepath.Base(vm.Disk()), filepath.Ext(vm.Disk()))
	own := vm.Disk() != "" && sameDir(filepath.Dir(vm.Disk()), t.s.disks.dir)
	if own && name == string(t.r.disk) || vm.Disk() == string(t.r.disk) { // or there is none
		return nil
	}
	var other []holt.DiskID
	if own {
		var err error
		other, err = t.s.disks.list(ctx, itsOther, name, t.r.disk, t.r.ID)
		if err != nil {
			return err
		}
	}
	if len(other) == 0 {
		return holt.Errorf(holt.Corrupt, "the machine reports that it writes to %q, which is not its disk %s", clip(vm.Disk()), t.r.disk).
			WithHint("its guest may have compromised QEMU: stop the computer")
	}
	t.s.log.ErrorContext(ctx, "machine writes to another root disk than the one on record", "computer", t.r.ID, "disk", other[0], "instead_of", t.r.disk)
	t.r.disk = other[0]
	return t.s.table.save(ctx, *t.r)
}

// foundGone records that the machine ended while no daemon was running.
func (t *takeover) foundGone(ctx context.Context) error {
	if err := t.s.snapshotter.mend(ctx, t.r, nil); err != nil {
		return err
	}
	switch t.r.State {
	case holt.ComputerPaused: // by a daemon that was killed before it could say so
		return nil
	case holt.ComputerResuming:
		return t.s.pauser.settleResume(ctx, t.r, false)
	}
	if err := t.endMount(ctx); err != nil {
		return err
	}
	var how machine.Ending
	switch {
	case t.r.State == holt.ComputerStopping:
		return t.stopped(ctx, "") // as it was asked to
	case t.r.State == holt.ComputerStarting && t.r.Reason == rebootReason:
		how.Kind = machine.EndReboot
	case t.r.State == holt.ComputerRunning:
		how = t.engine().Ended(t.s.cfg.dir(t.r.ID))
	}
	again, err := t.ended(ctx, how, "its machine ended while the daemon was not running")
	if err != nil || !again {
		return err
	}
	return t.resumeLocked(ctx, func(ctx context.Context) error { return t.restart(ctx, how) })
}

// cannotAdopt leaves a running machine alone. One that was being resumed writes to the disk that
// was made for that.
func (t *takeover) cannotAdopt(ctx context.Context, err error) error {
	t.s.log.ErrorContext(ctx, "adopt machine", "computer", t.r.ID, "name", t.r.Name, "err", err)
	if t.r.State == holt.ComputerResuming {
		if err := t.s.pauser.settleResume(ctx, t.r, true); err != nil {
			return err // the next daemon tries again
		}
	}
	t.r.State, t.r.Reason = holt.ComputerRunning, "the daemon cannot adopt its machine: "+err.Error()
	return t.s.table.save(ctx, *t.r)
}

func (t *takeover) resumeLocked(ctx context.Context, finish func(context.Context) error) error {
	unlock, err := t.s.machines.lock(ctx, t.r.ID)
	if err != nil {
		return err
	}
	_, leave, err := t.s.shutdown.enter(ctx)
	if err != nil {
		unlock()
		return err
	}
	go func() {
		defer leave()
		defer unlock()
		if err := finish(t.s.shutdown.ctx); err != nil && t.s.shutdown.ctx.Err() == nil {
			t.s.log.ErrorContext(ctx, "finish interrupted call", "computer", t.r.ID, "state", t.r.State, "err", err)
		}
	}()
	return nil
}

// finishStart waits for the guest of an adopted machine that was starting, and ends one that does
// not answer. The computer's lock is held.
func (t *takeover) finishStart(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, t.live.limits.Boot)
	defer cancel()
	came := t.live.await(bounded, t.live.limits.Boot)
	if came == nil {
		return t.settle(ctx)
	}
	if ctx.Err() != nil {
		return ending()
	}
	if err := t.back(ctx, "undo-start", t.boot()); err != nil {
		return err
	}
	return t.stopped(ctx, "the last start failed: "+came.Error())
}
