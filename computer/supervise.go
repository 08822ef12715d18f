package computer

// watch notices when a machine ends that nobody ended.
func (s *Store) watch(l *live) {
	_, leave, err := s.gate.enter(s.gate.ctx)
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
	r, unlock, err := s.hold(s.gate.ctx, string(l.id))
	if err != nil {
		return // deleted meanwhile, or the daemon is ending
	}
	defer unlock()
	if s.seats.live(l.id) != l {
		return
	}
	m := &making{s: s, r: &r, live: l}
	err = m.back(s.gate.ctx, "died", m.boot())
	if err == nil {
		err = m.stopped(s.gate.ctx, "its machine ended: it was shut down from inside, or its process was killed")
	}
	if err != nil && s.gate.ctx.Err() == nil {
		s.log.Error("record end of machine", "computer", l.id, "err", err)
	}
}
