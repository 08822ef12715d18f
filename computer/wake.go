package computer

import (
	"context"
	"maps"
	"slices"
	"strings"

	"holt"
)

// wake returns the running machine of a computer. A stopped one is started; a
// verb at work on it is waited for.
func (s *Store) wake(ctx context.Context, ref string) (record, *live, error) {
	for {
		r, err := s.find(ctx, ref)
		if err != nil {
			return record{}, nil, err
		}
		switch r.State {
		case holt.ComputerRunning:
			l := s.live(r.ID)
			if l != nil && l.running() {
				return r, l, nil
			}
			if err := s.settled(ctx, r.ID); err != nil {
				return record{}, nil, err
			}
			backoff(ctx, 0) // its end is being recorded
		case holt.ComputerStopped:
			if _, err := s.Start(ctx, string(r.ID), ""); err != nil {
				return record{}, nil, err
			}
		case holt.ComputerFailed:
			return record{}, nil, inState(r)
		default:
			_, unlock, err := s.hold(ctx, string(r.ID))
			if err != nil {
				return record{}, nil, err
			}
			unlock()
		}
	}
}

// running says whether the machine has not ended.
func (l *live) running() bool {
	select {
	case <-l.m.Done():
		return false
	default:
		return true
	}
}

// spawn runs fn in a goroutine that close waits for, unless close was called.
func (l *live) spawn(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.wg.Go(fn)
	}
}

// claimRun says that a run of this id is being started: a session that begins
// meanwhile must not take it for lost.
func (l *live) claimRun(id holt.RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[id] = true
	l.starting[id] = true
}

func (l *live) runClaimed(id holt.RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, id)
}

// runOpen says that the guest has a run that is not known to have ended.
func (l *live) runOpen(id holt.RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[id] = true
}

func (l *live) runEnded(id holt.RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

func (l *live) openRuns() []holt.RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

func (l *live) claimed(id holt.RunID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starting[id]
}

// runTag returns the run that a tag names.
func runTag(tag string) (holt.RunID, bool) {
	rest, ok := strings.CutPrefix(tag, "run/")
	if !ok {
		return "", false
	}
	id, err := holt.ParseRunID(rest)
	return id, err == nil
}

// startedHere says whether a run was started in this computer, by this daemon
// or one before it.
func (s *Store) startedHere(l *live, id holt.RunID) bool {
	l.mu.Lock()
	known := l.runs[id]
	l.mu.Unlock()
	if known {
		return true
	}
	run, err := s.Runs().Get(context.WithoutCancel(l.ctx), id)
	if err != nil || run.ComputerID != l.id {
		return false
	}
	l.mu.Lock()
	l.runs[id] = true
	l.mu.Unlock()
	return true
}
