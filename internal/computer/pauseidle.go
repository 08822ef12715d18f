package computer

import (
	"context"

	"holt"
	"holt/internal/idempotency"
)

// atRest calls act with a running computer that nothing uses, and its lock. It checks that once it
// has the lock, and again when new callers wait for it; false if the computer is in use. now
// ignores the idle timeout.
func (s *idler) atRest(ctx context.Context, id holt.ComputerID, now bool, act func(*record, *live) (bool, error)) (bool, error) {
	select {
	case s.atOnce <- struct{}{}:
		defer func() { <-s.atOnce }()
	case <-ctx.Done():
		return false, gone(ctx)
	}
	unlock, ok := s.machines.tryLock(ctx, id)
	if !ok {
		return false, nil // a verb is at work
	}
	defer unlock()
	r, err := s.table.find(ctx, string(id))
	l := s.machines.live(id)
	if err != nil || r.State != holt.ComputerRunning || l == nil {
		return false, err
	}
	if _, at := s.idle(r); !now && (s.never(r) != "" || s.uses.now().Before(at)) {
		return false, nil
	}
	done, ok := s.uses.rest(id, true)
	if !ok {
		return false, nil
	}
	defer done()
	if free, err := s.free(ctx, r, l); !free || err != nil {
		return false, err
	}
	return act(&r, l)
}

// free is the last check, when new uses wait.
func (s *idler) free(ctx context.Context, r record, l *live) (bool, error) {
	if s.machines.wanted(r.ID) {
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, awakeLimit)
	defer cancel()
	l.busy.look(bounded)
	in, err := s.inUse(ctx, r, l)
	if err != nil {
		return false, err
	}
	if len(in) > 0 {
		s.uses.used(r.ID, in[0])
		return false, nil
	}
	_, unknown := l.busy.is(s.patience(r))
	return unknown == "", nil
}

// pause pauses a computer that nothing uses, see [idler.atRest].
func (s *idler) pause(ctx context.Context, id holt.ComputerID, by string, now bool) (bool, error) {
	return s.atRest(idempotency.WithMethod(ctx, "pause"), id, now, func(r *record, l *live) (_ bool, err error) {
		if *r, err = s.snapshotter.canKeep(ctx, *r, l); err != nil {
			return false, err
		}
		if err := s.cfg.failpoint("idle/pause"); err != nil {
			return false, err
		}
		_, err = s.pauseLocked(ctx, r, l, by)
		return err == nil, err
	})
}

// looked returns a running computer after its guest has reported its activity from now on, so that
// what it was woken for does not count. "": it is not running.
func (s *idler) looked(ctx context.Context, ref string) (holt.ComputerID, error) {
	r, err := s.table.find(ctx, ref)
	l := s.machines.live(r.ID)
	if err != nil || r.State != holt.ComputerRunning || l == nil {
		return "", err
	}
	l.busy.look(ctx)
	if l.busy.rest(ctx); ctx.Err() != nil {
		return "", gone(ctx)
	}
	return r.ID, nil
}

// PauseIfIdle pauses a running computer at once if nothing uses it, whatever its idle timeout; by
// says who asks. It returns false if something does, or if the computer is not running. The use of
// the caller must have ended.
//
// Errors: NotFound, OutOfSpace, Unavailable.
func (m *Memory) PauseIfIdle(ctx context.Context, ref, by string) (bool, error) {
	return m.s.idler.pauseIfIdle(ctx, ref, by)
}

func (s *idler) pauseIfIdle(ctx context.Context, ref, by string) (bool, error) {
	ctx, leave, err := s.shutdown.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	r, err := s.table.find(ctx, ref)
	if err != nil || !s.cfg.engine(r).Capabilities().MemorySnapshot {
		return false, err
	}
	id, err := s.looked(ctx, ref)
	if id == "" || err != nil {
		return false, err
	}
	return s.pause(ctx, id, by, true)
}

// StopIfIdle is [Memory.PauseIfIdle] for a computer that was stopped before it was woken: it is stopped, unless
// it has an open terminal, which a stop would end. It completes even when its caller leaves.
//
// Errors: NotFound, Unavailable.
func (s *Store) StopIfIdle(ctx context.Context, ref string) (bool, error) {
	return detach(ctx, s.shutdown, func(ctx context.Context) (bool, error) { return s.idler.stopIfIdle(ctx, ref) })
}

func (s *idler) stopIfIdle(ctx context.Context, ref string) (bool, error) {
	id, err := s.looked(ctx, ref)
	if id == "" || err != nil {
		return false, err
	}
	return s.atRest(idempotency.WithMethod(ctx, "stop"), id, true, func(r *record, _ *live) (bool, error) {
		if open, err := s.terminals.open(ctx, r.ID); open || err != nil {
			return false, err
		}
		err := s.stopLocked(ctx, r)
		return err == nil, err
	})
}
