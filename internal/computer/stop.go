package computer

import (
	"context"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// Stop shuts a computer down and keeps both disks; a stopped one is left as it is. A guest that
// does not answer is powered down, and one that does not end is killed after at most 90 seconds.
// Stop completes even when its caller leaves.
//
// Errors: NotFound, Conflict (it is being deleted).
func (s *Store) Stop(ctx context.Context, ref, key string) (holt.Computer, error) {
	return s.verb(ctx, "computer.stop", ref, key, s.stop)
}

func (s *Store) stop(ctx context.Context, ref string) (holt.Computer, error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	switch r.State {
	case holt.ComputerStopped:
		return s.shown(r), nil
	case holt.ComputerResuming:
		if err := s.pauser.undoStuck(ctx, &r); err != nil {
			return holt.Computer{}, err
		}
		return s.pauser.forget(ctx, r)
	case holt.ComputerPaused:
		return s.pauser.forget(ctx, r)
	case holt.ComputerRunning, holt.ComputerStopping:
	default:
		return holt.Computer{}, wrongState(r)
	}
	err = s.stopLocked(ctx, &r)
	return s.shown(r), err
}

// stopLocked stops a running or stopping computer, whose lock is held.
func (s *Store) stopLocked(ctx context.Context, r *record) error {
	r.State, r.Reason = holt.ComputerStopping, ""
	if err := s.table.save(ctx, *r); err != nil {
		return err
	}
	if err := s.cfg.failpoint("stop/halt"); err != nil {
		return err
	}
	return (&transition{s: s, r: r}).finishStop(ctx)
}

// forget makes a paused computer a stopped one. Its disk is as after a power cut.
func (s *pauser) forget(ctx context.Context, r record) (holt.Computer, error) {
	m := &transition{s: s.Store, r: &r}
	if err := m.endMount(ctx); err != nil {
		return holt.Computer{}, err
	}
	r.Snapshot = ""
	err := m.stopped(ctx, "it was stopped while paused; the memory of its programs is in the snapshot "+string(r.snapshot))
	return s.shown(r), err
}

// endMount ends the mount of a guest that has ended.
func (m *transition) endMount(ctx context.Context) error {
	if err := m.openWorkspace(ctx); err != nil {
		m.s.log.WarnContext(ctx, "end mount of ended machine", "computer", m.r.ID, "err", err)
	}
	return m.closeWorkspace(ctx)
}

// finishStop ends the machine of a stopping computer, whose lock is held.
func (m *transition) finishStop(ctx context.Context) error {
	m.live = m.s.machines.live(m.r.ID)
	reason := ""
	if m.live != nil {
		m.s.budgets.last(ctx, m.r.ID)
		reason = m.live.halt(ctx, m.live.engine.Capabilities().PowerButton)
	}
	if ctx.Err() != nil {
		return ending() // the next daemon continues
	}
	if err := m.back(ctx, "stop", m.boot()); err != nil {
		return err
	}
	return m.stopped(ctx, reason)
}

// lost records that all runs and terminals of the computer have ended with its machine.
func (m *transition) lost(ctx context.Context, why holt.RunReason) error {
	if err := m.s.snapshotter.mend(ctx, m.r, nil); err != nil {
		return err
	}
	if err := m.s.runRows.loseAll(ctx, m.r.ID, why); err != nil {
		return err
	}
	return m.s.terminalRows.loseAll(ctx, m.r.ID)
}

// stopped records that the computer's machine has ended.
func (m *transition) stopped(ctx context.Context, reason string) error {
	if err := m.lost(ctx, ""); err != nil {
		return err
	}
	m.r.State, m.r.Reason = holt.ComputerStopped, reason
	m.r.fulfil()
	if err := m.s.table.save(ctx, *m.r); err != nil {
		return err
	}
	m.s.log.InfoContext(ctx, "computer stopped", "computer", m.r.ID, "name", m.r.Name, "reason", reason)
	return nil
}

// halt asks the guest to shut down while its workspace is still served: through its agent or, if
// that does not answer, with the power button. It asks once. It returns what a user should know
// about how the machine ended.
func (l *live) halt(ctx context.Context, powerButton bool) (reason string) {
	asked := l.askToEnd(ctx)
	limit := l.limits.Shutdown
	if asked != nil {
		l.log.WarnContext(ctx, "ask guest agent to shut down", "computer", l.id, "err", asked)
		if limit = l.limits.PowerDown; powerButton {
			asked = l.m.PowerDown(ctx)
		}
	}
	if asked == nil && l.ended(ctx, limit) || ctx.Err() != nil || !l.running() {
		return ""
	}
	return "the guest did not shut down when asked, so its machine was killed; unsynced data may be lost"
}

// askToEnd asks the agent to shut the guest down, within Limits.Reconnect.
func (l *live) askToEnd(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, l.limits.Reconnect)
	defer cancel()
	return l.do(bounded, l.limits.Reconnect, false, func(ctx context.Context, c *agent.Client) error {
		end, _ := ctx.Deadline()
		l.runTracker.takeAll(ctx, c, time.Until(end)/2)
		l.trim(ctx)
		return c.Shutdown(ctx)
	})
}

// ended waits up to limit until the machine has ended.
func (l *live) ended(ctx context.Context, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.m.Done():
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
