package computer

import (
	"context"
	"errors"
	"fmt"

	"holt"
	"holt/machine"
)

// recover finishes or undoes what a daemon before this one left half-done, and
// adopts the machines that run.
func (s *Store) recover(ctx context.Context) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := s.takeOver(ctx, r); err != nil {
			return fmt.Errorf("take over computer %s: %w", r.Name, err)
		}
	}
	return nil
}

func (s *Store) takeOver(ctx context.Context, r record) error {
	switch r.State {
	case holt.ComputerCreating, holt.ComputerDeleting:
		s.log.Info("remove half-made computer", "computer", r.ID, "name", r.Name, "state", r.State)
		if err := s.unmake(ctx, r, "recover"); err != nil {
			s.markFailed(ctx, r, err)
		}
		return nil
	case holt.ComputerRunning, holt.ComputerStarting, holt.ComputerStopping:
		return s.adopt(ctx, r)
	default:
		return nil
	}
}

// adopt takes a computer's machine over, if it still runs. Whatever waits for
// its guest goes on after this returns.
func (s *Store) adopt(ctx context.Context, r record) error {
	vm, err := s.cfg.Engine.Adopt(ctx, s.dir(r.ID))
	if errors.Is(err, machine.ErrGone) {
		return s.foundGone(ctx, r)
	}
	if err != nil {
		return s.cannotAdopt(ctx, r, err)
	}
	ws, release, err := s.cfg.Workspaces.Take(ctx, r.workspaceID)
	if err != nil {
		vm.Release()
		return s.cannotAdopt(ctx, r, err)
	}
	l := s.newLive(r, ws, release)
	l.m, l.fresh = vm, r.State == holt.ComputerStarting
	l.connect(s.ctx)
	s.setLive(r.ID, l)
	s.watch(l)
	s.log.Info("computer adopted", "computer", r.ID, "name", r.Name, "state", r.State, "pid", vm.PID())
	if r.State == holt.ComputerRunning {
		if r.Reason != "" {
			r.Reason = ""
			return s.save(ctx, r)
		}
		return nil
	}
	return s.resume(ctx, r)
}

// foundGone records that a machine ended while no daemon watched.
func (s *Store) foundGone(ctx context.Context, r record) error {
	m := &making{s: s, r: &r}
	if err := m.openWorkspace(ctx); err != nil { // it ends the guest's mount
		s.log.Warn("end mount of a machine that is gone", "computer", r.ID, "err", err)
	}
	if err := m.closeWorkspace(ctx); err != nil {
		return err
	}
	reason := "its machine ended while the daemon was away"
	if r.State == holt.ComputerStopping {
		reason = "" // as it was asked to
	}
	return s.stopped(ctx, &r, reason)
}

// cannotAdopt leaves a machine alone that runs and cannot be taken over.
func (s *Store) cannotAdopt(ctx context.Context, r record, err error) error {
	s.log.Error("cannot adopt machine", "computer", r.ID, "name", r.Name, "err", err)
	r.State, r.Reason = holt.ComputerRunning, "its machine cannot be taken over: "+err.Error()
	return s.save(ctx, r)
}

// resume goes on, in the background, with the start or stop that a daemon
// before this one began.
func (s *Store) resume(ctx context.Context, r record) error {
	unlock, err := s.lock(ctx, r.ID)
	if err != nil {
		return err
	}
	_, leave, err := s.enter(ctx)
	if err != nil {
		unlock()
		return err
	}
	go func() {
		defer leave()
		defer unlock()
		finish := s.finishStart
		if r.State == holt.ComputerStopping {
			finish = s.finishStop
		}
		if err := finish(s.ctx, &r); err != nil && s.ctx.Err() == nil {
			s.log.Error("go on with what was begun", "computer", r.ID, "state", r.State, "err", err)
		}
	}()
	return nil
}

// finishStart waits for the guest of an adopted machine that was starting; one
// that does not come up is ended. The computer's lock is held.
func (s *Store) finishStart(ctx context.Context, r *record) error {
	l := s.live(r.ID)
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Limits.Boot)
	defer cancel()
	m := &making{s: s, r: r, live: l}
	err := l.await(bounded, s.cfg.Limits.Boot)
	if err == nil {
		return m.settle(ctx)
	}
	if ctx.Err() != nil {
		return ending()
	}
	if err := m.back(ctx, "undo-start", m.boot()); err != nil {
		return err
	}
	return s.stopped(ctx, r, "the last start failed: "+err.Error())
}

// watch notices when a machine ends that nobody ended.
func (s *Store) watch(l *live) {
	_, leave, err := s.enter(s.ctx)
	if err != nil {
		return // the daemon is ending
	}
	go func() {
		defer leave()
		select {
		case <-l.ctx.Done():
		case <-l.m.Done():
			s.died(l)
		}
	}()
}

// died records that a machine has ended, unless a verb that holds the
// computer's lock ended it.
func (s *Store) died(l *live) {
	r, unlock, err := s.hold(s.ctx, string(l.id))
	if err != nil {
		return // deleted meanwhile, or the daemon is ending
	}
	defer unlock()
	if s.live(l.id) != l {
		return
	}
	m := &making{s: s, r: &r, live: l}
	err = m.back(s.ctx, "died", m.boot())
	if err == nil {
		err = s.stopped(s.ctx, &r, "its machine ended: it was shut down from inside, or its process was killed")
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Error("record end of machine", "computer", l.id, "err", err)
	}
}
