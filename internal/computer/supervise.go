package computer

import "context"

// supervise starts what accompanies a machine until it ends or the daemon lets go of it.
func (s *Store) supervise(l *live) {
	s.shutdown.spawn(func(ctx context.Context) { s.idler.watch(ctx, l) })
	s.shutdown.spawn(func(context.Context) {
		select {
		case <-l.ctx.Done():
		case <-l.m.Done():
			s.machineEnded(l)
		}
	})
}

// machineEnded records that a machine has ended, unless a verb that holds the computer's lock ended it.
func (s *Store) machineEnded(l *live) {
	r, unlock, err := s.hold(s.shutdown.ctx, string(l.id))
	if err != nil {
		return // the computer was deleted, or the daemon is ending
	}
	defer unlock()
	if s.machines.live(l.id) != l {
		return
	}
	m := &transition{s: s, r: &r, live: l}
	how := l.engine.Ended(s.cfg.dir(r.ID))
	again := false
	if err = m.back(s.shutdown.ctx, "died", m.boot()); err == nil {
		again, err = m.ended(s.shutdown.ctx, how, "its machine ended: the process was killed or crashed")
	}
	if again && err == nil {
		err = (&transition{s: s, r: &r}).restart(s.shutdown.ctx, how)
	}
	if err != nil && s.shutdown.ctx.Err() == nil {
		s.log.Error("record end of machine", "computer", l.id, "err", err)
	}
}
