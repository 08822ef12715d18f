package computer

import "context"

// supervision notices when a machine ends that nobody ended.
type supervision struct {
	s *Store
	l *live
}

// watch begins it; it ends with the machine or the daemon.
func (v supervision) watch() {
	v.s.shutdown.spawn(func(ctx context.Context) { idling{v.s}.watch(ctx, v.l) })
	v.s.shutdown.spawn(func(context.Context) {
		select {
		case <-v.l.ctx.Done():
		case <-v.l.m.Done():
			v.died()
		}
	})
}

// died records that a machine has ended, unless a verb that holds the
// computer's lock ended it.
func (v supervision) died() {
	s := v.s
	r, unlock, err := s.hold(s.shutdown.ctx, string(v.l.id))
	if err != nil {
		return // deleted meanwhile, or the daemon is ending
	}
	defer unlock()
	if s.machines.live(v.l.id) != v.l {
		return
	}
	m := &transition{s: s, r: &r, live: v.l}
	how := s.cfg.Engine.Ended(s.cfg.dir(r.ID))
	again := false
	if err = m.back(s.shutdown.ctx, "died", m.boot()); err == nil {
		again, err = m.ended(s.shutdown.ctx, how, "its machine ended: its process was killed, or failed")
	}
	if again && err == nil {
		err = (&transition{s: s, r: &r}).restart(s.shutdown.ctx, how)
	}
	if err != nil && s.shutdown.ctx.Err() == nil {
		s.log.Error("record end of machine", "computer", v.l.id, "err", err)
	}
}
